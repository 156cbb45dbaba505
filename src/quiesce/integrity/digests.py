"""Digests: which request this is, and which bytes were sent for it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from quiesce.errors import UsageError
from quiesce.ids import Digest
from quiesce.kv.runs import copy_runs
from quiesce.kv.storage import Pool

PAYLOAD_DIGESTS = ("off", "blake2b")
"""Settings of the payload digest, as HELLO compares them."""

_DIGEST_BYTES = 16


def request_digest(model_fingerprint: str, adapter: str, salt: str, token_ids: bytes) -> Digest:
    """What both halves compute, each from its own copy of the request; a rank binds only an equal one.

    `token_ids` is the packed little-endian uint32 array of the prompt. Every field carries its length, so that no
    two different requests are the same bytes.
    """
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=b"quiesce-request")
    for field in (model_fingerprint.encode(), adapter.encode(), salt.encode(), token_ids):
        hasher.update(len(field).to_bytes(8, "little"))
        hasher.update(field)
    return Digest(hasher.hexdigest())


def payload_digest(pool: Pool, pages: npt.NDArray[np.integer[Any]], setting: str = "blake2b") -> str:
    """blake2b-128 over the bytes of `pages` in prompt order, 32 hex digits; "" when `setting` is off.

    It does not depend on page numbers, so source and destination agree. Reads the pool in place and releases the GIL.
    Raises UsageError for an unknown setting.
    """
    if setting not in PAYLOAD_DIGESTS:
        raise UsageError(f"payload digest must be one of {', '.join(PAYLOAD_DIGESTS)}, not {setting!r}")
    if setting == "off":
        return ""
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=b"quiesce-payload")
    rows = pool.page_view()
    runs = copy_runs(pages, pages)
    for first, count in zip(runs.source.tolist(), runs.pages.tolist(), strict=True):
        hasher.update(rows[first : first + count].data)
    return hasher.hexdigest()


def digest_words(digest: str) -> tuple[int, int]:
    """The low and high uint64 of a 128-bit hex digest, for a metadata slot; (0, 0) for "". ValueError for nonsense."""
    if not digest:
        return (0, 0)
    if len(digest) != 2 * _DIGEST_BYTES:
        raise ValueError(f"a digest has {2 * _DIGEST_BYTES} hex digits, not {len(digest)}")
    value = int.from_bytes(bytes.fromhex(digest), "big")
    return (value & (2**64 - 1), value >> 64)
