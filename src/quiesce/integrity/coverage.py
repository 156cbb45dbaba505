"""Coverage: does the memory itself say that everything arrived? (PROTOCOL rule 11)

DONE is no proof of content: it comes from the same bookkeeping that may be wrong. The tag plane is written by the
writer after the bytes, page by page, so a page that nobody filled cannot bear the lease's tag.
"""

from __future__ import annotations

from typing import Any

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


def check_coverage(
    pool: Pool,
    pages: AnyPages,
    tag: PageTag,
    slot: int | None,
    expected_pages: int,
    prompt_tokens: int,
    first_token: int,
    payload_digest: str = "",
) -> Failure | None:
    """None when the lease is whole: every one of `pages` (prompt order) bears `tag` in every layer group, there are
    `expected_pages` of them, the metadata slot says what DONE said, and, unless `payload_digest` is "", the bytes
    have that digest.

    `pages` and `slot` are the receiver's own numbers; `slot` is None where nobody writes one. Otherwise the first
    reason found: `coverage_mismatch`, `metadata_mismatch` or `digest_mismatch`, the transport's fault. The digest is
    checked over the pool in place, which is no defence against a write that is still to come: rules 1 to 9 are.
    """
    stamps = check_stamps(pool, pages, tag, slot, expected_pages, prompt_tokens, first_token, payload_digest)
    return stamps or check_payload(pool, pages, payload_digest)


def check_stamps(
    pool: Pool,
    pages: AnyPages,
    tag: PageTag,
    slot: int | None,
    expected_pages: int,
    prompt_tokens: int,
    first_token: int,
    payload_digest: str = "",
) -> Failure | None:
    """The tags and the metadata slot of `check_coverage`, each word read once; not a byte of the pages."""
    return _check_tags(pool, pages, tag, expected_pages) or _check_metadata(
        pool, tag, slot, expected_pages, prompt_tokens, first_token, payload_digest
    )


def _check_tags(pool: Pool, pages: AnyPages, tag: PageTag, expected_pages: int) -> Failure | None:
    if len(pages) != expected_pages:
        return _failure("coverage_mismatch", f"the lease has {len(pages)} pages, the prompt needs {expected_pages}")
    missing = pool.tags[pages] != np.uint64(tag)
    if not missing.any():
        return None
    positions, groups = np.nonzero(missing)
    bad = len(np.unique(positions))
    where = f"the first is page {pages[positions[0]]} (number {positions[0]} of the prompt), layer group {groups[0]}"
    return _failure("coverage_mismatch", f"{bad} of {len(pages)} pages do not bear the lease's tag; {where}")


def _check_metadata(
    pool: Pool, tag: PageTag, slot: int | None, pages: int, prompt_tokens: int, first_token: int, payload_digest: str
) -> Failure | None:
    try:
        expected = metadata_words(tag, first_token, pages, prompt_tokens, payload_digest)
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
