"""A prompt in chunks: whatever the cuts, the same pages and the same first token, and nothing of anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing

import numpy as np
import pytest

from quiesce.engine.engine import Aborted
from quiesce.integrity.digests import payload_digest
from quiesce.kv.allocator import PageState
from quiesce.worker.prompt import Chunk, Prompt

from .requests import request
from .rig import PAGE, Rig, alone, prompt_ids


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def prompt_of(rig: Rig, length: int) -> Prompt:
    n_pages = rig.pool.layout.pages_for(length)
    allocation = rig.allocator.allocate(n_pages, "r", PageState.USED)
    return Prompt(request(prompt_ids(length)), allocation.pages[::-1].copy())


async def chunks_of(rig: Rig, prompt: Prompt, chunk_tokens: int, *, digest: bool = False) -> list[Chunk]:
    compute = prompt.compute(rig.engine, rig.pool, rig.compute, chunk_tokens, digest=digest)
    async with aclosing(compute):
        return [chunk async for chunk in compute]


@pytest.mark.parametrize("length", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 1])
async def test_every_cut_gives_the_same(rig: Rig, length: int) -> None:
    """Chunks follow each other without gap or overlap, cover every page, and only the last has the first token."""
    whole = prompt_of(rig, length)
    await chunks_of(rig, whole, length)
    for chunk_tokens in range(1, length + 1):
        prompt = prompt_of(rig, length)
        chunks = await chunks_of(rig, prompt, chunk_tokens)
        assert [c.first_page for c in chunks] == np.cumsum([0, *(c.pages for c in chunks[:-1])]).tolist()
        assert sum(c.pages for c in chunks) == len(prompt.pages)
        assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]
        assert [c.first_token for c in chunks] == [-1] * (len(chunks) - 1) + alone(prompt_ids(length), 1)
        assert np.array_equal(rig.pool.kv[prompt.pages], rig.pool.kv[whole.pages])
        rig.allocator.release(prompt.pages)


async def test_pages_of_a_chunk_are_final(rig: Rig) -> None:
    """A page that was announced changes no more: its write may be launched at once."""
    prompt = prompt_of(rig, 4 * PAGE + 2)
    seen: dict[int, bytes] = {}
    async with aclosing(prompt.compute(rig.engine, rig.pool, rig.compute, 3, digest=False)) as chunks:
        async for chunk in chunks:
            for i in range(chunk.first_page, chunk.first_page + chunk.pages):
                seen[i] = rig.pool.kv[prompt.pages[i]].tobytes()
    assert seen == {i: rig.pool.kv[page].tobytes() for i, page in enumerate(prompt.pages)}


async def test_nothing_of_an_earlier_owner_travels(rig: Rig) -> None:
    """The last page behind the prompt is zero, although the pool was full of garbage."""
    prompt = prompt_of(rig, 2 * PAGE + 1)
    await chunks_of(rig, prompt, PAGE)
    tail = rig.pool.kv[prompt.pages[-1], :, :, 1:]
    assert not tail.any()
    assert not np.isnan(rig.pool.kv[prompt.pages]).any()


@pytest.mark.parametrize("chunk_tokens", [1, PAGE, PAGE + 1, 9 * PAGE])
@pytest.mark.parametrize(("cached", "held"), [(1, 0), (0, 1), (1, 1), (3, 1), (1, 3), (3, 3)])
async def test_what_is_cached_is_not_computed_and_what_decode_holds_is_not_sent(
    rig: Rig, cached: int, held: int, chunk_tokens: int
) -> None:
    """The same token, and every page that decode lacks once and in order, counted from the first of them."""
    length = 3 * PAGE + 2
    whole = prompt_of(rig, length)
    await chunks_of(rig, whole, PAGE)
    before = rig.pool.kv[whole.pages].copy()
    rest = Prompt(request(prompt_ids(length)), whole.pages, cached, held)
    rig.pool.kv[whole.pages[cached:]] = np.nan
    chunks = await chunks_of(rig, rest, chunk_tokens, digest=True)
    assert [c.first_page for c in chunks] == np.cumsum([0, *(c.pages for c in chunks[:-1])]).tolist()
    assert sum(c.pages for c in chunks) == 4 - held == len(rest.pages_to_send)
    assert chunks[-1].first_token == alone(prompt_ids(length), 1)[0]
    assert chunks[-1].payload_digest == payload_digest(rig.pool, whole.pages[held:])
    assert np.array_equal(rig.pool.kv[whole.pages], before)


async def test_cached_pages_may_travel_before_anything_is_computed(rig: Rig) -> None:
    whole = prompt_of(rig, 3 * PAGE + 1)
    rest = Prompt(request(prompt_ids(3 * PAGE + 1)), whole.pages, 3, 1)
    async with aclosing(rest.compute(rig.engine, rig.pool, rig.compute, PAGE, digest=False)) as chunks:
        assert await anext(chunks) == Chunk(0, 2, last=False)


async def test_the_digest_covers_all_pages_and_comes_last(rig: Rig) -> None:
    prompt = prompt_of(rig, 2 * PAGE + 1)
    chunks = await chunks_of(rig, prompt, PAGE, digest=True)
    assert [c.payload_digest for c in chunks] == ["", "", payload_digest(rig.pool, prompt.pages)]


async def test_an_abort_stops_it(rig: Rig) -> None:
    prompt = prompt_of(rig, 3 * PAGE)
    async with aclosing(prompt.compute(rig.engine, rig.pool, rig.compute, PAGE, digest=False)) as chunks:
        await anext(chunks)
        prompt.abort.aborted = True
        with pytest.raises(Aborted):
            await anext(chunks)
