"""What no backend writes: checked before the first byte of a write leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.kv.storage import METADATA_WORDS
from quiesce.transport.contract import Metadata, Write


def refusal(write: Write, source_pages: int, target_pages: int, slots: int) -> str:
    """Why nothing of this write may be copied from a pool of `source_pages` into one of `target_pages`, or ""."""
    if len(write.source_pages) != len(write.target_pages):
        return f"{len(write.source_pages)} source pages cannot go into {len(write.target_pages)} target pages"
    if not _inside(write.source_pages, source_pages):
        return f"a source page lies outside the pool of {source_pages} pages"
    if not _inside(write.target_pages, target_pages):
        return f"a target page lies outside the pool of {target_pages} pages"
    if not 0 < write.tag < 2**64:
        return f"{write.tag} is no page tag"
    return _metadata_refusal(write.metadata, slots) if write.metadata is not None else ""


def _metadata_refusal(metadata: Metadata, slots: int) -> str:
    if not 0 <= metadata.slot < slots:
        return f"metadata slot {metadata.slot} lies outside the pool's {slots}"
    if len(metadata.words) != METADATA_WORDS or not all(0 <= word < 2**64 for word in metadata.words):
        return f"metadata is {METADATA_WORDS} numbers of 64 bits"
    return ""


def _inside(pages: npt.NDArray[np.integer[Any]], pool_pages: int) -> bool:
    return len(pages) == 0 or bool(pages.min() >= 0 and pages.max() < pool_pages)
