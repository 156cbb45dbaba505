"""A request that generates: what it has said so far and which pages hold its context."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from quiesce.engine.config import ModelConfig
from quiesce.engine.shaping import Shaping, shaping_of
from quiesce.ids import Attempt, RequestId
from quiesce.kv.prefix_cache import Reader
from quiesce.protocol.dispatch import Sampling, Tokens
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.worker.priority_queue import rank_of
from quiesce.worker.request import Request

MOST_MISSES = 3
"""Masks that were not there in time: after them an answer is in a step only when its mask is there before."""


class Generation:
    """What a request asked of generation, after admission: `max_tokens` is what fits, `seed` is always set."""

    __slots__ = ("max_tokens", "priority", "sampling", "seed", "stop_ids")

    def __init__(
        self, sampling: Sampling, seed: int, stop_ids: frozenset[int], max_tokens: int, priority: int = 0
    ) -> None:
        self.sampling = sampling
        self.seed = seed
        self.stop_ids = stop_ids
        self.max_tokens = max_tokens
        self.priority = priority


def generation_of(request: Request, max_tokens: int, eos: tuple[int, ...]) -> Generation:
    """What the request asks of generation."""
    stop_ids = stop_ids_of(request, eos)
    return Generation(request.sampling, request.seed, stop_ids, max_tokens, request.submit.priority)


def stop_ids_of(request: Request, eos: tuple[int, ...]) -> frozenset[int]:
    """Tokens that end the answer; end-of-text ids do, unless the request said `ignore_eos`.

    A grammar comes to an end all the same: there `ignore_eos` means that the answer ends only where it must.
    """
    ignored = request.submit.ignore_eos and not request.sampling.grammar
    return frozenset(request.submit.stop_token_ids) | (frozenset() if ignored else frozenset(eos))


def shaping_for(request: Request, config: ModelConfig) -> Shaping | None:
    """A fresh one, for a request that has not said anything yet."""
    eos = config.eos_token_ids
    unwanted = eos if request.submit.ignore_eos and request.sampling.grammar else ()
    stop_ids = stop_ids_of(request, eos)
    return shaping_of(request.sampling, request.token_ids, stop_ids, config.vocab_size, request.constraint, unwanted)


class Sequence:
    """One running request. `pages` (int32) and `tags` (uint64) are in the order of the context.

    The first `borrowed_pages` are not the batch's to free: `reader` shares them, or they are hand-off `attempt`'s.
    `position` counts the tokens whose KV is in the pages; `last_token` is sampled and not yet in them. `saved` has the
    pages' bytes while the sequence is retracted. `rank` says who goes on when pages are short. `cached_tokens` of the
    prompt were not computed for it. `awaited`: the batch looks again when its mask is there. In `misses` steps it had
    no mask in time. `failed`: it ended, and not because it was complete or nobody wanted more of it.
    """

    def __init__(
        self, request: RequestId, generation: Generation, position: int, shaping: Shaping | None = None
    ) -> None:
        self.request = request
        self.generation = generation
        self.position = self._prompt_tokens = position
        self.shaping = shaping
        self.last_token = -1
        self.generated = 0
        self._said: list[int] = []
        self.pages: NDArray[np.int32] = np.empty(0, np.int32)
        self.tags: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.borrowed_pages = 0
        self.reader: Reader | None = None
        self.cached_tokens = 0
        self.attempt: Attempt | None = None
        self.saved: NDArray[np.float32] | None = None
        self.rank = rank_of(generation.priority, 0)
        self.ended = False
        self.failed = False
        self.tainted = False
        self.awaited = False
        self.misses = 0

    @property
    def can_draw(self) -> bool:
        """False while its grammar is being compiled, or the next mask is being made."""
        return self.shaping is None or self.shaping.grammar is None or self.shaping.grammar.is_ready

    def may_step(self, wake: Callable[[], None]) -> bool:
        """As a rule its mask is made while a step computes. Who was late waits for it first: `wake` is called then."""
        if not self.awaited and self.misses >= MOST_MISSES:
            self.await_mask(wake)
        return self.can_draw or not self.awaited

    def await_mask(self, wake: Callable[[], None]) -> None:
        """No step without its next mask: call `wake` when that is there."""
        if self.shaping is not None and self.shaping.grammar is not None:
            self.awaited = True
            self.shaping.grammar.when_ready(wake)

    def has_mask(self, at_most_s: float) -> bool:
        """Wait for its next mask, if it needs one, but not for longer than this; whether it is there."""
        return self.shaping is None or self.shaping.grammar is None or self.shaping.grammar.wait(at_most_s)

    @property
    def problem(self) -> str:
        """Why nothing more can be drawn for it, or ""."""
        return "" if self.shaping is None else self.shaping.problem

    @property
    def left_tokens(self) -> int:
        """How many more tokens it may say."""
        return self.generation.max_tokens - self.generated

    @property
    def own_pages(self) -> NDArray[np.int32]:
        """Those that are the batch's to free."""
        return self.pages[self.borrowed_pages :]

    @property
    def computed_ids(self) -> bytes:
        """Those tokens of its answer whose KV is in the pages, packed as in a request."""
        return np.array(self._said[: self.position - self._prompt_tokens], "<u4").tobytes()

    def own(self, pages: NDArray[np.int32], tag: int | NDArray[np.uint64]) -> None:
        """Append pages that bear this tag, or each its own."""
        self.pages = np.concatenate([self.pages, pages])
        self.tags = np.concatenate([self.tags, np.full(len(pages), tag, np.uint64)])

    def accept(self, token: int, told: TokenLogprobs | None = None) -> Tokens:
        """Take the next drawn token; what to say of it, and whether and why the sequence ends."""
        self.last_token = token
        self._said.append(token)
        self.generated += 1
        self.awaited = False
        if self.shaping is not None:
            self.shaping.say(token)
        if token in self.generation.stop_ids:
            return Tokens(self.request, (), "stop", self.cached_tokens)
        finish = "length" if self.generated >= self.generation.max_tokens else ""
        return Tokens(self.request, (token,), finish, self.cached_tokens, logprobs=() if told is None else (told,))
