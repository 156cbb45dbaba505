"""`/v1/chat/completions`, `/v1/completions` and `/v1/responses`: one request's way through the router."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from quiesce.api.asked import Asked
from quiesce.api.responses import Usage
from quiesce.errors import RequestRejected
from quiesce.protocol.messages import Failure
from quiesce.router.answer import piece_of
from quiesce.router.body import read_body, unless_client_leaves
from quiesce.router.choice import Choice
from quiesce.router.choices import Choices
from quiesce.router.dialects import Dialect, Finished
from quiesce.router.failures import ABORTED, ROUTER_BUG, ClientGone, GenerationFailed, Throttled
from quiesce.router.intake import Share
from quiesce.router.meter import TokenClock
from quiesce.router.quotas import Visit
from quiesce.router.reply import Event, Reply
from quiesce.router.request_names import request_name
from quiesce.router.running import owner_of
from quiesce.router.service import Service
from quiesce.telemetry.logs import ids

_log = logging.getLogger(__name__)


class GenerateEndpoint:
    """An ASGI application for one dialect. Nothing exists for a request until all checks are behind it (rule 10)."""

    def __init__(self, service: Service, read: Callable[[bytes, int], Asked], dialect: type[Dialect]) -> None:
        self._service = service
        self._meter = service.meter
        self._read = read
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send)
        with self._service.stopping.counted():
            try:
                outcome = await self._outcome(scope, receive, reply)
            except ClientGone:
                outcome = "cancelled"
            self._meter.ended(outcome)
            with contextlib.suppress(ClientGone):
                await reply.finish()

    async def _outcome(self, scope: Scope, receive: Receive, reply: Reply) -> str:
        """Answer but for the end, or say what went wrong. Raises ClientGone."""
        try:
            await self._serve(scope, receive, reply)
        except RequestRejected as error:
            self._meter.rejected(error.code)
            # Admission and text do not know the dialect and say "messages".
            param = self._dialect.prompt_field if error.param == "messages" else error.param
            if isinstance(error, Throttled):
                reply.headers.update(error.headers)
            await reply.error(error.message, code=error.code, status=error.status, param=param)
            return "rejected"
        except GenerationFailed as error:
            failure = error.failure
            await reply.error(failure.message, code=failure.code, status=_http_status(failure))
            return "cancelled" if failure == ABORTED else "failed"
        except ClientGone:
            raise
        except Exception:
            _log.exception("a request failed in the router", extra=ids(path=scope["path"], code=ROUTER_BUG.code))
            await reply.error("Internal error.", code=ROUTER_BUG.code, status=ROUTER_BUG.status)
            return "failed"
        return "finished"

    async def _serve(self, scope: Scope, receive: Receive, reply: Reply) -> None:
        headers = Headers(scope=scope)
        self._service.stopping.check_arrival()
        tenant = self._service.keys.check(headers)
        clock = self._meter.clock()
        with self._service.visit(tenant) as visit, self._service.intake.share() as share:
            reply.headers.update(visit.headers())
            asked = await self._service.stopping.unless_called_off(self._asked(headers, receive, share))
            self._meter.stripped(asked.stripped)
            self._service.check_model(asked.model)
            await unless_client_leaves(receive, self._answer(asked, visit, scope, reply, clock))

    async def _asked(self, headers: Headers, receive: Receive, share: Share) -> Asked:
        return await self._service.parsed(self._read, await read_body(headers, receive, share))

    async def _answer(self, asked: Asked, visit: Visit, scope: Scope, reply: Reply, clock: TokenClock) -> None:
        wanted = await self._service.stopping.unless_called_off(self._service.orders(asked, visit.tenant))
        orders = visit.take(wanted, asked.n, self._service.longest_tokens)
        reply.headers.update(visit.headers())
        choices = Choices(self._service, asked, orders)
        await choices.check()
        dialect = self._dialect(self._service.model_name, asked, self._service.text.spell)
        way = _Stream if asked.stream else _Document
        _log.info("a request begins", extra=ids(request=dialect.id, client_request=request_name(scope)))
        try:
            with self._service.running.named(dialect.id, owner_of(Headers(scope=scope))) as run:
                await run.unless_aborted(way(asked, choices, dialect, reply, clock).answer(), choices.aborted)
        finally:
            visit.use(choices.used())


class _Document:
    """All answers in one JSON document, when the last one is complete."""

    def __init__(self, asked: Asked, choices: Choices, dialect: Dialect, reply: Reply, clock: TokenClock) -> None:
        self._asked, self._choices, self._dialect, self._reply, self._clock = asked, choices, dialect, reply, clock
        self._finished: dict[int, Finished] = {}

    async def answer(self) -> None:
        await self._choices.each(self._collect)
        answers = [self._finished[choice.index] for choice in self._choices.all]
        await self._reply.json(self._dialect.whole(answers, self._choices.usage()))

    async def _collect(self, choice: Choice) -> None:
        pieces = await choice.whole(self._clock.beside())
        pieces.insert(0, choice.beginning())
        parts = (part for piece in pieces for part in piece.parts)
        said = (said for piece in pieces for said in piece.said)
        self._finished[choice.index] = Finished(piece_of(parts, said), choice.finish_reason)


class _Stream:
    """Chunks as tokens come; those of several answers are mixed, each with its index."""

    def __init__(self, asked: Asked, choices: Choices, dialect: Dialect, reply: Reply, clock: TokenClock) -> None:
        self._asked, self._choices, self._dialect, self._reply, self._clock = asked, choices, dialect, reply, clock
        reply.failing = dialect.failing

    async def answer(self) -> None:
        await self._choices.each(self._tell)
        await self._send(self._dialect.ending(self._choices.usage()))
        self._reply.done(says_so=self._dialect.says_done)

    async def _tell(self, choice: Choice) -> None:
        index, opened = choice.index, False
        async with aclosing(choice.pieces(self._clock.beside())) as pieces:
            async for piece in pieces:
                if not opened:
                    await self._send(self._dialect.opening(index, choice.beginning(), self._usage()))
                opened = True
                if piece:
                    await self._send(self._dialect.piece(index, piece, self._usage()))
        await self._send(self._dialect.closing(index, choice.finish_reason, self._usage()))

    async def _send(self, events: Iterable[Event]) -> None:
        for event in events:
            await self._reply.event(event)

    def _usage(self) -> Usage | None:
        return self._choices.usage() if self._asked.continuous_usage else None


def _http_status(failure: Failure) -> int:
    """499 tells whoever waits for an answer that it was aborted; otherwise it would tell nobody anything."""
    status = failure.status
    return status if 400 <= status <= 599 and (status != 499 or failure == ABORTED) else 500
