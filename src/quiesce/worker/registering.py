"""Announcing this worker to routers, for as long as it serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from quiesce.control.address import Address, TcpAddress, parse_address, show_address
from quiesce.control.connection import require_grant
from quiesce.control.dialing import connect
from quiesce.control.registration_codec import decode_registrar_frame
from quiesce.control.restraint import Restraint
from quiesce.control.security import Security
from quiesce.control.stream import FrameStream
from quiesce.control.whereabouts import Places
from quiesce.errors import BadFrame, ConfigurationError, PeerUnusable
from quiesce.protocol.dispatch import ROUTER
from quiesce.protocol.registration import Leave, Refused, Register, Registered, RegistrarFrame
from quiesce.telemetry.logs import ids
from quiesce.worker.timers import backoff_s

_DIAL_S = 5.0
_GOODBYE_S = 1.0

log = logging.getLogger(__name__)

OnPrefills = Callable[[str, Places], None]
"""(router, where it says that prefill workers are)."""


class Registrations:
    """One registration per router, made anew when it is lost."""

    def __init__(self, said: Register, routers: Sequence[Address], security: Security, told: OnPrefills) -> None:
        self._said = said
        self._security = security
        self._told = told
        self._leaving = False
        self._restraint = Restraint()
        self._unfit: dict[Address, tuple[tuple[str, str], ...]] = {}
        self._streams: set[FrameStream[RegistrarFrame]] = set()
        self._tasks = [asyncio.create_task(self._keep(each), name="register") for each in routers]

    async def leave(self) -> None:
        """Tell every router that nothing new should come here."""
        self._leaving = True
        with contextlib.suppress(TimeoutError, PeerUnusable):
            async with asyncio.timeout(_GOODBYE_S):
                for stream in list(self._streams):
                    stream.send(Leave())
                    await stream.flush()
        await self.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, router: Address) -> None:
        """Whatever ends a registration, it is tried again; the reason is said once."""
        round_, said = 0, ""
        while not self._leaving:
            taken, trouble = await self._try(router)
            if not self._leaving and (taken or trouble != said):
                self._say(logging.WARNING, "not registered", router, reason=trouble)
            round_, said = (0 if taken else round_ + 1), trouble
            await asyncio.sleep(backoff_s(0.05, round_, most_s=1.0))

    async def _try(self, router: Address) -> tuple[bool, str]:
        """Whether this worker was registered and nobody objected later, and what ended that."""
        taken, over_tls = False, isinstance(router, TcpAddress) and self._security.tls is not None
        try:
            sock = await connect(router, _DIAL_S, self._security)
            stream = FrameStream(sock, decode_registrar_frame, show_address(router))
            with contextlib.closing(stream):
                require_grant(stream.identity, ROUTER, "")
                stream.send(self._said)
                while (frame := await stream.receive()) is not None:
                    if isinstance(frame, Refused):
                        return False, frame.reason
                    self._taken(router, stream, frame)
                    taken = True
        except PeerUnusable as error:
            return taken, str(error)
        finally:
            self._streams = {each for each in self._streams if not each.closed}
        return taken, f"the router hung up{_why(stream, doubted=not taken and over_tls)}"

    def _taken(self, router: Address, stream: FrameStream[RegistrarFrame], frame: Registered) -> None:
        if stream not in self._streams:
            self._streams.add(stream)
            self._say(logging.INFO, "registered", router)
        self._tell_unfit(router, frame.unfit)
        self._told(show_address(router), _places(frame))

    def _tell_unfit(self, router: Address, unfit: tuple[tuple[str, str], ...]) -> None:
        """Who of the other role will not be paired with this worker. That is no refusal: its own kind may come yet."""
        news = set(unfit).difference(self._unfit.get(router, ()))
        self._unfit[router] = unfit
        for name, reason in sorted(news):
            self._say(logging.WARNING, "a pair is not formed", router, worker_name=name, reason=reason)

    def _say(self, level: int, what: str, router: Address, **told: object) -> None:
        """In the log, but not again and again of a router that comes and goes."""
        subject = f"{show_address(router)} {told.get('worker_name', '')}"
        if (unsaid := self._restraint.unsaid(subject)) is not None:
            log.log(level, what, extra=ids(address=show_address(router), unsaid=unsaid or None, **told))


def _why(stream: FrameStream[RegistrarFrame], *, doubted: bool) -> str:
    """What the network said of it, or what is likely: TLS 1.3 lets a worker in before its certificate is looked at."""
    if stream.trouble:
        return f": {stream.trouble}"
    return ": perhaps its --tls-ca did not sign our certificate: see its log" if doubted else ""


def _places(frame: Registered) -> Places:
    """Raises BadFrame for an address that cannot be one."""
    try:
        return {parse_address(address): name for name, address in frame.prefills}
    except ConfigurationError as error:
        raise BadFrame(f"prefills: {error}") from error
