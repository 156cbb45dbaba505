"""One of the answers that a request gets: its own internal request, its own text, its own end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from quiesce.api.responses import FinishReason
from quiesce.protocol.dispatch import Tokens
from quiesce.protocol.pairing import CallOff, Stopped
from quiesce.router.answer import Answer, Piece
from quiesce.router.echo import Echo
from quiesce.router.failures import ABORTED, ROUTER_BUG, SIBLING_FAILED, STOP_STRING
from quiesce.router.generation import Generation
from quiesce.router.meter import TokenClock
from quiesce.router.service import Service


class Choice:
    """`index` is its place in the response; `echo`, if there is one, is shown before it."""

    def __init__(
        self, index: int, echo: Echo | None, service: Service, generation: Generation, fresh: Callable[[], Answer]
    ) -> None:
        """`fresh` makes an answer of which nothing has been said yet."""
        self.index = index
        self._echo = echo
        self._fresh = fresh
        self.answer = fresh()
        self._service = service
        self._generation = generation
        self._tries = 0

    def beginning(self) -> Piece:
        """What is shown before the answer; to be asked for when its first piece is there."""
        if self._echo is None:
            return Piece()
        return self._echo.piece(self._generation.token_ids, self._generation.prompt_told)

    @property
    def finish_reason(self) -> FinishReason:
        return self.answer.finish_reason or "stop"

    @property
    def begun(self) -> bool:
        """Whether workers were asked for it, in a try that is not void."""
        return self._generation.used_tokens > 0

    @property
    def completion_tokens(self) -> int:
        """What was answered until now. What void tries said is not."""
        is_void = not self.begun or self._generation.retried > self._tries
        return 0 if is_void else self.answer.completion_tokens

    async def check(self) -> None:
        """Raises RequestRejected when it cannot be served now; no worker hears of it."""
        await self._generation.check()

    def sibling_failed(self) -> None:
        """When it is ended now, then because there is no use for it any more."""
        self._generation.ending = CallOff(SIBLING_FAILED)

    def aborted(self) -> None:
        """When it is ended now, then because whoever began it wants it no more."""
        self._generation.ending = CallOff(ABORTED)

    async def whole(self, clock: TokenClock) -> list[Piece]:
        """All of it, when it is complete. A try that failed midway has said nothing."""
        whole, tries = list[Piece](), 0
        async with aclosing(self.pieces(clock)) as pieces:
            async for piece in pieces:
                if self._tries > tries:
                    whole, tries = [], self._tries
                whole.append(piece)
        return whole

    async def pieces(self, clock: TokenClock) -> AsyncGenerator[Piece, None]:
        """The answer as it comes; the first piece, perhaps empty, tells that generation has begun."""
        piece = Piece()
        try:
            async with aclosing(self._generation.tokens()) as frames:
                async for tokens in frames:
                    piece = self._push(tokens, clock)
                    if self.answer.finish_reason:
                        break
                    yield piece
        finally:
            self._service.meter.retried(self._generation.retried)
        self._service.readiness.proved(self._generation.proved)
        yield piece

    def _push(self, tokens: Tokens, clock: TokenClock) -> Piece:
        """Both halves are told the right reason, whether a stop string ends the answer or a bug of ours does."""
        try:
            if self._generation.retried > self._tries:
                self.answer, self._tries = self._fresh(), self._generation.retried
            clock.tick(len(tokens.token_ids))
            piece = self.answer.push(tokens)
        except Exception:
            self._generation.ending = CallOff(ROUTER_BUG)
            raise
        if self.answer.finish_reason:
            self._generation.ending = Stopped(STOP_STRING)
        return piece
