"""A prompt being computed, chunk by chunk, into pages that nobody else reads yet."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
import numpy as np
from numpy.typing import NDArray

from quiesce.engine.engine import AbortFlag, Engine
from quiesce.engine.finite import NotFinite, finite_rows
from quiesce.engine.logprobs import tell
from quiesce.engine.sampling import sample
from quiesce.integrity.digests import payload_digest
from quiesce.kv.storage import Pool
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.worker.compute import Compute
from quiesce.worker.request import Request, grammar_failed
from quiesce.worker.sequence import shaping_for

_MOST_TOLD_ROWS = 128
"""Rows whose logits exist at once, a vocabulary wide each."""


class Chunk(msgspec.Struct, frozen=True):
    """Pages [first_page, first_page + pages) of those to be sent became final. The last chunk has the first token.

    `told` are the log probabilities of the prompt's own tokens from position `told_from` on, if they were asked for.
    """

    first_page: int
    pages: int
    last: bool
    first_token: int = -1
    payload_digest: str = ""
    first_logprobs: TokenLogprobs | None = None
    told_from: int = 1
    told: tuple[TokenLogprobs, ...] = ()


class Prompt:
    """`pages` (int32) are the prompt's, in order. The first `cached_pages` need no computing, and are only read.

    The first `held_pages` need no sending: decode has them. Either number may be the larger one.
    """

    def __init__(self, request: Request, pages: NDArray[np.int32], cached_pages: int = 0, held_pages: int = 0) -> None:
        self.request = request
        self.pages = pages
        self.cached_pages = cached_pages
        self.held_pages = held_pages
        self.abort = AbortFlag()

    @property
    def pages_to_send(self) -> NDArray[np.int32]:
        return self.pages[self.held_pages :]

    async def compute(
        self, engine: Engine, pool: Pool, compute: Compute, chunk_tokens: int, *, digest: bool
    ) -> AsyncGenerator[Chunk, None]:
        """Yield each chunk as its pages become final.

        Raises engine.Aborted when `abort` is set, RequestRejected when no first token can be drawn under the grammar.
        """
        total, page_size = self.request.prompt_tokens, pool.layout.page_size
        sent = max(0, self.cached_pages - self.held_pages)
        if sent:
            yield Chunk(0, sent, last=False)
        chunk_tokens = min(chunk_tokens, _MOST_TOLD_ROWS) if self.request.submit.tells_prompt else chunk_tokens
        for start in range(self.cached_pages * page_size, total, chunk_tokens):
            end = min(start + chunk_tokens, total)
            if end < total:
                likely = await compute.run(self._advance, engine, pool, start, end)
                final = max(sent, end // page_size - self.held_pages)
                yield Chunk(sent, final - sent, last=False, told_from=start + 1, told=likely)
                sent = final
            else:
                if self.request.constraint is not None:
                    await self.request.constraint.ready()
                token, told, hashed, likely = await compute.run(self._finish, engine, pool, start, digest)
                pages = len(self.pages_to_send) - sent
                yield Chunk(sent, pages, True, token, hashed, told, told_from=start + 1, told=likely)

    def _advance(self, engine: Engine, pool: Pool, start: int, end: int) -> tuple[TokenLogprobs, ...]:
        pages, token_ids = self.pages[: pool.layout.pages_for(end)], self.request.token_ids[start:end]
        if self.request.submit.tells_prompt:
            return self._likely(engine.prefill_rows(token_ids, start, pages, self.abort), start)
        engine.prefill_chunk(token_ids, start, pages, self.abort, want_logits=False)
        return ()

    def _finish(
        self, engine: Engine, pool: Pool, start: int, digest: bool
    ) -> tuple[int, TokenLogprobs | None, str, tuple[TokenLogprobs, ...]]:
        token_ids, likely = self.request.token_ids[start:], tuple[TokenLogprobs, ...]()
        if self.request.submit.tells_prompt:
            rows = engine.prefill_rows(token_ids, start, self.pages, self.abort)
            likely, logits = self._likely(rows[:-1], start), rows[-1]
        else:
            logits = np.asarray(engine.prefill_chunk(token_ids, start, self.pages, self.abort, want_logits=True))
        self._clear_tail(pool)
        token, told = self._draw(engine, logits[None])
        return token, told, payload_digest(pool, self.pages_to_send) if digest else "", likely

    def _likely(self, rows: NDArray[np.float32], start: int) -> tuple[TokenLogprobs, ...]:
        """How likely each row found the token that follows it in the prompt."""
        _check_finite(rows)
        following = self.request.token_ids[start + 1 : start + 1 + len(rows)]
        told = tell(rows, following, [self.request.sampling] * len(rows)) or []
        return tuple(each for each in told if each is not None)

    def _draw(self, engine: Engine, logits: NDArray[np.float32]) -> tuple[int, TokenLogprobs | None]:
        """Step 0 of the answer, drawn as whoever generates the rest would."""
        _check_finite(logits)
        sampling = [self.request.sampling]
        shaping = shaping_for(self.request, engine.config)
        tokens = sample(logits, sampling, [self.request.seed], [0], [shaping])
        if shaping is not None and shaping.problem:
            raise grammar_failed(shaping.problem)
        told = tell(logits, tokens, sampling)
        return int(tokens[0]), told[0] if told else None

    def _clear_tail(self, pool: Pool) -> None:
        """Zero what the last page holds behind the prompt: it may be an earlier owner's context, and it travels."""
        used = self.request.prompt_tokens % pool.layout.page_size
        if used:
            pool.kv[self.pages[-1], :, :, used:] = 0


def _check_finite(logits: NDArray[np.float32]) -> None:
    if not finite_rows(logits).all():
        raise NotFinite("the model's output is not finite")
