"""What no backend writes or reads: checked before the first byte leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.kv.storage import METADATA_WORDS
from quiesce.transport.contract import Metadata, Write
from quiesce.transport.pulling import Read


def refusal(job: Write | Read, source_pages: int, target_pages: int, slots: int = 0) -> str:
    """Why nothing of this job may be copied from a pool of `source_pages` into one of `target_pages`, or ""."""
    if len(job.source_pages) != len(job.target_pages):
        return f"{len(job.source_pages)} source pages cannot go into {len(job.target_pages)} target pages"
    if not _inside(job.source_pages, source_pages):
        return f"a source page lies outside the pool of {source_pages} pages"
    if not _inside(job.target_pages, target_pages):
        return f"a target page lies outside the pool of {target_pages} pages"
    for tag in (job.tag, job.source_tag) if isinstance(job, Read) else (job.tag,):
        if not 0 < tag < 2**64:
            return f"{tag} is no page tag"
    metadata = job.metadata if isinstance(job, Write) else None
    return _metadata_refusal(metadata, slots) if metadata is not None else ""


def _metadata_refusal(metadata: Metadata, slots: int) -> str:
    if not 0 <= metadata.slot < slots:
        return f"metadata slot {metadata.slot} lies outside the pool's {slots}"
    if len(metadata.words) != METADATA_WORDS or not all(0 <= word < 2**64 for word in metadata.words):
        return f"metadata is {METADATA_WORDS} numbers of 64 bits"
    return ""


def _inside(pages: npt.NDArray[np.integer[Any]], pool_pages: int) -> bool:
    return len(pages) == 0 or bool(pages.min() >= 0 and pages.max() < pool_pages)
