"""Coverage: does the memory itself say that everything arrived? (PROTOCOL rule 11)

DONE is no proof of content: it comes from the same bookkeeping that may be wrong. The tag plane is written by the
writer after the bytes, page by page, so a page that nobody filled cannot bear the lease's tag.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from quiesce.ids import PageTag
from quiesce.integrity import digests
from quiesce.kv.storage import METADATA_WORDS, Pool
from quiesce.protocol.messages import Failure, Fault

AnyPages = npt.NDArray[np.integer[Any]]
_WORD_NAMES = ("tag", "first token", "pages", "prompt tokens", "digest", "digest", "reserved", "reserved")


def metadata_words(
    tag: PageTag, first_token: int, pages: int, prompt_tokens: int, payload_digest: str = ""
) -> tuple[int, ...]:
    """The 8 uint64 that the last write of an attempt puts into the lease's metadata slot; word 0 is the tag.

    The digest's words are zero when digests are off, or when the writer leaves it to DONE to say the digest.
    """
    low, high = digests.digest_words(payload_digest)
    return (int(tag), first_token, pages, prompt_tokens, low, high, 0, 0)


class Told(msgspec.Struct, frozen=True):
    """What a lease is said to hold, by DONE and by who asked for it. `payload_digest`: "" where none is compared."""

    tag: PageTag
    pages: int
    prompt_tokens: int
    first_token: int
    payload_digest: str = ""


def check_coverage(pool: Pool, pages: AnyPages, slot: int | None, told: Told) -> Failure | None:
    """None when the lease is whole: every one of `pages` (prompt order) bears the tag in every layer group, there are
    as many as told, the metadata slot says the same, and the bytes have the digest, if there is one.

    `pages` and `slot` are the receiver's own numbers; `slot` is None where nobody writes one. Otherwise the first
    reason found: `coverage_mismatch`, `metadata_mismatch` or `digest_mismatch`, the transport's fault. The digest is
    checked over the pool in place, which is no defence against a write that is still to come: rules 1 to 9 are.
    """
    return check_stamps(pool, pages, slot, told) or check_payload(pool, pages, told.payload_digest)


def check_stamps(pool: Pool, pages: AnyPages, slot: int | None, told: Told) -> Failure | None:
    """The tags and the metadata slot of `check_coverage`, each word read once; not a byte of the pages."""
    return _check_tags(pool, pages, told) or _check_metadata(pool, slot, told)


def _check_tags(pool: Pool, pages: AnyPages, told: Told) -> Failure | None:
    if len(pages) != told.pages:
        return _failure("coverage_mismatch", f"the lease has {len(pages)} pages, the prompt needs {told.pages}")
    missing = pool.tags[pages] != np.uint64(told.tag)
    if not missing.any():
        return None
    positions, groups = np.nonzero(missing)
    bad = len(np.unique(positions))
    where = f"the first is page {pages[positions[0]]} (number {positions[0]} of the prompt), layer group {groups[0]}"
    return _failure("coverage_mismatch", f"{bad} of {len(pages)} pages do not bear the lease's tag; {where}")


def _check_metadata(pool: Pool, slot: int | None, told: Told) -> Failure | None:
    try:
        expected = metadata_words(told.tag, told.first_token, told.pages, told.prompt_tokens, told.payload_digest)
    except ValueError as error:  # the digest came with DONE, from the peer
        return _failure("digest_mismatch", str(error))
    if slot is None:
        return None
    found = pool.metadata[slot].tolist()
    if found[4:6] == [0, 0]:
        expected = (*expected[:4], 0, 0, *expected[6:])
    for index in range(METADATA_WORDS):
        if found[index] != expected[index]:
            return _failure("metadata_mismatch", f"metadata slot {slot} differs in word {index} ({_WORD_NAMES[index]})")
    return None


def check_payload(pool: Pool, pages: AnyPages, expected: str) -> Failure | None:
    """None when the bytes of `pages`, in this order, have the digest `expected`, or when that is ""."""
    if expected and digests.payload_digest(pool, pages) != expected.lower():
        return _failure("digest_mismatch", f"the bytes of {len(pages)} pages are not those that were sent")
    return None


def _failure(code: str, message: str) -> Failure:
    return Failure(code, message, Fault.TRANSPORT)
