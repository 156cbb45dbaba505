"""A batch on a real tiny engine, driven step by step: the tests' hand on the continuous batching of decode."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ids
from functools import cache

import numpy as np
from numpy.typing import NDArray

from quiesce.engine.engine import AbortFlag, Engine
from quiesce.engine.shaping import shaping_of
from quiesce.ids import Attempt, PageTag, RequestId
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.protocol.dispatch import Sampling, Tokens
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Failure
from quiesce.worker.batch import Batch
from quiesce.worker.compute import Compute
from quiesce.worker.sequence import Generation, Sequence

GREEDY = Sampling(temperature=0.0)
PAGE = 4
"""Tokens of a page in these tests, so that borders come often."""


def prompt_ids(length: int, seed: int = 0) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, 256, length).astype(np.int32)


class Said:
    """What the batch told its owner."""

    def __init__(self) -> None:
        self.tokens: dict[RequestId, list[int]] = {}
        self.logprobs: dict[RequestId, list[TokenLogprobs]] = {}
        self.finish: dict[RequestId, str] = {}
        self.failures: dict[RequestId, Failure] = {}
        self.errors: dict[RequestId, Exception] = {}
        self.unused: list[Attempt] = []
        self.kept: list[RequestId] = []
        self.steps = 0

    def emit(self, sequence: Sequence, tokens: Tokens) -> None:
        self.tokens.setdefault(sequence.request, []).extend(tokens.token_ids)
        self.logprobs.setdefault(sequence.request, []).extend(tokens.logprobs)
        if tokens.finish:
            self.finish[sequence.request] = tokens.finish

    def fail(self, sequence: Sequence, failure: Failure, error: Exception | None = None) -> None:
        self.failures[sequence.request] = failure
        if error is not None:
            self.errors[sequence.request] = error

    def keep(self, sequence: Sequence) -> Pages:
        self.kept.append(sequence.request)
        return sequence.own_pages

    def lease_unused(self, sequence: Sequence) -> None:
        if sequence.attempt is not None:
            self.unused.append(sequence.attempt)

    def stepped(self) -> None:
        self.steps += 1


class Rig:
    """A pool of `pages` pages with garbage in it, an engine on it, and a batch."""

    def __init__(self, pages: int = 64, max_running: int = 8) -> None:
        self.engine = Engine.load("tiny", deterministic=True)
        self.pool = Pool.private(self.engine.layout(PAGE), pages)
        self.pool.kv[:] = np.float32(np.nan)  # whoever reads what was not written has NaN in the answer
        self.engine.bind(self.pool)
        self.allocator = PageAllocator(pages, PageTag(1000))
        self.compute = Compute()
        self.said = Said()
        self.batch = Batch(self.engine, self.pool, self.allocator, self.compute, max_running, self.said)

    def begin(
        self,
        name: str,
        ids: NDArray[np.int32],
        max_tokens: int,
        *,
        stop_ids: Iterable[int] = (),
        sampling: Sampling = GREEDY,
        leased: bool = False,
        priority: int = 0,
    ) -> Sequence:
        """Compute a prompt and let its sequence join. `leased`: as if its pages had come by a hand-off."""
        generation = Generation(sampling, 7, frozenset(stop_ids), max_tokens, priority)
        shaping = shaping_of(sampling, ids, stop_ids, self.engine.config.vocab_size)
        sequence = Sequence(RequestId(name), generation, len(ids), shaping)
        sequence.own(*self.batch.allocate(self.pool.layout.pages_for(len(ids)), name))
        if leased:
            sequence.borrowed_pages, sequence.attempt = len(sequence.pages), Attempt(1)
        logits = self.engine.prefill_chunk(ids, 0, sequence.pages, AbortFlag(), want_logits=True)
        told = TokenLogprobs(-1.0) if sampling.logprobs is not None else None
        self.batch.begin(sequence, int(np.asarray(logits).argmax()), told)
        return sequence

    async def run(self) -> None:
        while await self.step():
            pass

    async def step(self) -> bool:
        """The next step that computes something. False when there is none, whatever masks are still being made."""
        while not await self.batch.step():
            if not any(sequence.awaited for sequence in self.batch._running):
                return False
            await self.batch.idle()
        return True

    def count(self, state: PageState) -> int:
        return self.allocator.counts()[state.name.lower()]

    @property
    def all_free(self) -> bool:
        return self.allocator.free_pages == self.pool.pages

    def close(self) -> None:
        self.compute.close()


@cache
def solo(ids: Ids[int], max_tokens: int) -> tuple[int, ...]:
    """The greedy answer to a prompt that is alone in the world, by the engine's bare calls."""
    engine = Engine.load("tiny", deterministic=True)
    pool = Pool.private(engine.layout(PAGE), (len(ids) + max_tokens) // PAGE + 1)
    engine.bind(pool)
    pages = np.arange(pool.pages, dtype=np.int32)
    logits = engine.prefill_chunk(np.array(ids, np.int32), 0, pages, AbortFlag(), want_logits=True)
    tokens = [int(np.asarray(logits).argmax())]
    while len(tokens) < max_tokens:
        position = np.array([len(ids) + len(tokens) - 1], np.int32)
        step = engine.decode_step(np.array(tokens[-1:], np.int32), position, pages[None])
        tokens.append(int(step[0].argmax()))
    return tuple(tokens)


def alone(ids: NDArray[np.int32], max_tokens: int) -> list[int]:
    """`solo` for an array of ids."""
    return list(solo(tuple(ids.tolist()), max_tokens))
