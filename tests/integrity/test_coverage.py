from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from quiesce.ids import PageTag
from quiesce.integrity.coverage import Told, check_coverage, metadata_words
from quiesce.integrity.digests import payload_digest
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.protocol.messages import Failure, Fault

TAG = PageTag(2**62 + 7)
PAGES = np.array([5, 6, 7, 1, 9], np.int32)
SLOT = 2
PROMPT_TOKENS = 18
FIRST_TOKEN = 42


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool in which the lease of PAGES has arrived whole."""
    private = Pool.private(Layout(4, 1, 4, 4, layer_groups=2), 12, 4)
    private.kv[...] = np.random.default_rng(2).random(private.kv.shape, np.float32)
    private.tags[...] = TAG - 1
    private.stamp(PAGES, TAG)
    digest = payload_digest(private, PAGES)
    private.metadata[SLOT] = metadata_words(TAG, FIRST_TOKEN, len(PAGES), PROMPT_TOKENS, digest)
    yield private
    private.close()


def check(pool: Pool, expected_pages: int = len(PAGES), digest: str | None = None) -> Failure | None:
    expected = payload_digest(pool, PAGES) if digest is None else digest
    return check_coverage(pool, PAGES, SLOT, Told(TAG, expected_pages, PROMPT_TOKENS, FIRST_TOKEN, expected))


def code_of(failure: Failure | None) -> str:
    return failure.code if failure else ""


def test_a_whole_lease_passes(pool: Pool) -> None:
    assert check(pool) is None


def test_any_single_page_group_that_nobody_stamped_is_found_and_named(pool: Pool) -> None:
    for (position, page), group in itertools.product(enumerate(PAGES.tolist()), range(2)):
        for wrong in (0, TAG - 1, TAG + 1):
            pool.tags[page, group] = wrong
            failure = check(pool)
            assert failure is not None
            assert failure.code == "coverage_mismatch"
            assert failure.fault is Fault.TRANSPORT
            assert f"page {page} (number {position} of the prompt), layer group {group}" in failure.message
            assert "1 of 5 pages" in failure.message
            pool.tags[page, group] = TAG
    assert check(pool) is None


def test_tags_of_other_pages_are_nobody_s_business(pool: Pool) -> None:
    pool.tags[[0, 2, 3, 4, 8, 10, 11]] = 3
    assert check(pool) is None


@pytest.mark.parametrize("expected_pages", [0, 4, 6])
def test_a_lease_of_another_length_than_the_prompt_is_no_cover(pool: Pool, expected_pages: int) -> None:
    assert code_of(check(pool, expected_pages)) == "coverage_mismatch"


def test_every_metadata_word_counts(pool: Pool) -> None:
    for word in range(8):
        pool.metadata[SLOT, word] ^= np.uint64(1)
        failure = check(pool)
        assert code_of(failure) == "metadata_mismatch"
        assert failure is not None
        assert f"word {word}" in failure.message
        pool.metadata[SLOT, word] ^= np.uint64(1)


def test_metadata_that_was_never_written_is_found(pool: Pool) -> None:
    pool.metadata[SLOT] = 0
    assert code_of(check(pool)) == "metadata_mismatch"


def test_other_slots_are_nobody_s_business(pool: Pool) -> None:
    pool.metadata[[0, 1, 3]] = 99
    assert check(pool) is None


def test_another_first_token_than_done_said_is_found(pool: Pool) -> None:
    for first_token in (FIRST_TOKEN + 1, -1, 2**70):
        failure = check_coverage(pool, PAGES, SLOT, Told(TAG, len(PAGES), PROMPT_TOKENS, first_token))
        assert code_of(failure) == "metadata_mismatch"


def test_one_changed_bit_of_payload_is_found(pool: Pool) -> None:
    digest = payload_digest(pool, PAGES)
    pool.page_view()[PAGES[3], 17] ^= 4
    assert code_of(check(pool, digest=digest)) == "digest_mismatch"


def test_a_digest_of_nonsense_is_a_mismatch_and_no_crash(pool: Pool) -> None:
    for nonsense in ("x", "g" * 32, "0" * 1000):
        assert code_of(check(pool, digest=nonsense)) == "digest_mismatch"
    assert code_of(check(pool, digest="0" * 32)) == "metadata_mismatch"


def test_without_a_digest_the_metadata_says_none(pool: Pool) -> None:
    pool.metadata[SLOT] = metadata_words(TAG, FIRST_TOKEN, len(PAGES), PROMPT_TOKENS)
    assert check(pool, digest="") is None
    pool.metadata[SLOT, 4] = 1
    assert code_of(check(pool, digest="")) == "metadata_mismatch"


def test_a_writer_may_leave_the_digest_to_done(pool: Pool) -> None:
    pool.metadata[SLOT, 4:6] = 0
    assert check(pool) is None
    digest = payload_digest(pool, PAGES)
    pool.page_view()[PAGES[0], 0] ^= 1
    assert code_of(check(pool, digest=digest)) == "digest_mismatch"
