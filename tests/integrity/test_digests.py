from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from quiesce.errors import UsageError
from quiesce.integrity.digests import digest_words, payload_digest, request_digest
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool

TOKENS = np.arange(10, dtype="<u4").tobytes()


@pytest.fixture
def pool() -> Iterator[Pool]:
    private = Pool.private(Layout(2, 1, 4, 4), 12)
    private.kv[...] = np.random.default_rng(1).random(private.kv.shape, np.float32)
    yield private
    private.close()


def test_equal_requests_and_only_they_have_equal_digests() -> None:
    requests = [
        ("model", "adapter", "salt", TOKENS),
        ("other", "adapter", "salt", TOKENS),
        ("model", "other", "salt", TOKENS),
        ("model", "adapter", "other", TOKENS),
        ("model", "adapter", "salt", TOKENS[:-4]),
        ("model", "adapter", "salt", TOKENS[4:] + TOKENS[:4]),
        ("modela", "dapter", "salt", TOKENS),
        ("model", "adaptersalt", "", TOKENS),
        ("model", "adapter", "", b"salt" + TOKENS),
    ]
    assert len({request_digest(*request) for request in requests}) == len(requests)
    assert request_digest(*requests[0]) == request_digest(*requests[0])
    assert len(request_digest(*requests[0])) == 32


def test_the_payload_digest_is_of_the_bytes_not_of_the_page_numbers(pool: Pool) -> None:
    source, target = np.array([1, 2, 3, 7]), np.array([11, 4, 5, 0])
    before = payload_digest(pool, source)
    pool.kv[target] = pool.kv[source]
    assert payload_digest(pool, target) == before
    assert payload_digest(pool, np.array([1, 3, 2, 7])) != before


def test_the_payload_digest_sees_every_byte(pool: Pool) -> None:
    pages = np.array([3, 4, 8])
    before = payload_digest(pool, pages)
    raw = pool.page_view()
    for page, byte in itertools.product(pages, range(raw.shape[1])):
        raw[page, byte] ^= 1
        assert payload_digest(pool, pages) != before
        raw[page, byte] ^= 1
    assert payload_digest(pool, pages) == before


def test_the_payload_digest_can_be_off(pool: Pool) -> None:
    assert payload_digest(pool, np.array([1]), "off") == ""
    with pytest.raises(UsageError):
        payload_digest(pool, np.array([1]), "crc32")


def test_a_digest_is_two_words() -> None:
    assert digest_words("00000000000000010000000000000002") == (2, 1)
    assert digest_words("") == (0, 0)
    for nonsense in ("1", "z" * 32, "0" * 34):
        with pytest.raises(ValueError, match="hex"):
            digest_words(nonsense)
