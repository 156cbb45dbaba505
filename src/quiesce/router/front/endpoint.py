"""The two legs of a request at fronts: decode's (or an aggregated worker's) answers, prefill's tells of its half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quiesce.api.asked import Asked
from quiesce.errors import RequestRejected
from quiesce.router.body import read_body, unless_client_leaves
from quiesce.router.dialects import Dialect
from quiesce.router.endpoint import GenerateEndpoint
from quiesce.router.failures import GenerationFailed
from quiesce.router.front.bootstrap import FrontAsked, with_bootstrap
from quiesce.router.front.leg import Leg
from quiesce.router.front.service import FrontService


class HandOffMeta(msgspec.Struct, frozen=True):
    """The lists are there for routers that put prefill's log probabilities before decode's: there are none."""

    handed_off: bool
    input_token_logprobs: tuple[()] = ()
    output_token_logprobs: tuple[()] = ()


class HandOff(msgspec.Struct, frozen=True):
    """What a prefill worker answers: no text, since none was made there."""

    meta_info: HandOffMeta
    text: str = ""


class DecodeLeg(GenerateEndpoint):
    """An ordinary request through this router, on the pair that another one chose. When it fails, both halves end."""

    def __init__(self, service: FrontService, read: Callable[[bytes, int], Asked], dialect: type[Dialect]) -> None:
        super().__init__(service, with_bootstrap(read), dialect)
        self._front = service

    async def _answer(self, asked: Asked, *rest: Any) -> None:
        if not isinstance(asked, FrontAsked):
            raise TypeError(type(asked))
        leg = self._front.leg(asked.bootstrap)
        leg.expect(len(asked.prompts) * asked.n)
        told = msgspec.structs.replace(asked, leg=leg)
        if not leg.rooms:
            await super()._answer(told, *rest)
            return
        with self._front.meetings.held(leg), leg.reporting():
            await super()._answer(told, *rest)


class PrefillLeg:
    """Waits for decode's leg, which sends both halves to the workers."""

    def __init__(self, service: FrontService, read: Callable[[bytes, int], Asked]) -> None:
        self._service = service
        self._read = with_bootstrap(read)

    async def answer(self, request: Request) -> Response:
        """Checks what decode's leg checks: it must not wait for one that was refused over there."""
        service = self._service
        service.stopping.check_arrival()
        service.keys.check(request.headers)
        with service.stopping.counted(), service.intake.share() as share:
            asked = await service.parsed(self._read, await read_body(request.headers, request.receive, share))
            service.check_model(asked.model)
            rooms = asked.bootstrap.rooms if isinstance(asked, FrontAsked) else ()
            if not rooms:
                message = "A prefill worker only computes prompts for a decode worker, and needs bootstrap_room."
                raise RequestRejected(message, code="bootstrap_missing", param="bootstrap_room")
            met: list[Leg] = []
            await unless_client_leaves(request.receive, self._wait(rooms, met))
        return _said(met[0], asked.stream)

    async def _wait(self, rooms: tuple[int, ...], met: list[Leg]) -> None:
        try:
            met.append(await self._service.stopping.unless_called_off(self._met(rooms)))
        except GenerationFailed as error:
            failure = error.failure
            raise RequestRejected(failure.message, code=failure.code, status=failure.status) from None

    async def _met(self, rooms: tuple[int, ...]) -> Leg:
        leg = await self._service.meetings.leg(rooms)
        if leg.pair is not None and leg.pair.prefill is not self._service.link:
            message = "The decode worker was told another prefill worker for this bootstrap_room."
            raise RequestRejected(message, code="other_prefill", param="bootstrap_port")
        await leg.over.wait()
        if leg.trouble is not None:
            raise leg.trouble
        return leg


class Leaning:
    """An ASGI application that leans on what the worker is: only its greeting tells."""

    def __init__(self, service: FrontService, decode: DecodeLeg, prefill: PrefillLeg) -> None:
        self._service, self._decode, self._prefill = service, decode, prefill

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._service.role == "prefill":
            response = await self._prefill.answer(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await self._decode(scope, receive, send)


def _said(leg: Leg, stream: bool) -> Response:
    document = msgspec.json.encode(HandOff(HandOffMeta(leg.handed_off)))
    if stream:
        return Response(b"data: " + document + b"\n\ndata: [DONE]\n\n", media_type="text/event-stream")
    return Response(document, media_type="application/json")
