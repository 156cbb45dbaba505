"""The door where workers announce themselves, and what follows: the router dials them, decode hears of prefill."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from quiesce.control.address import Address, TcpAddress, show_address
from quiesce.control.connection import Connection, is_local
from quiesce.control.registration_codec import decode_leave, decode_register
from quiesce.control.single_frame import first_frame
from quiesce.control.stream import FrameStream
from quiesce.control.whereabouts import Whereabouts
from quiesce.control.workers_file import MOST_WORKERS
from quiesce.errors import PeerUnusable
from quiesce.protocol.registration import Leave, Refused, Register, Registered
from quiesce.router.fleet import Fleet
from quiesce.router.roster import Entry, Roster
from quiesce.telemetry.logs import ids

FORGET_S = 60.0
"""How long a worker that was lost is still dialled; one that is connected is not forgotten."""
_GOODBYE_S = 1.0
SOURCE = "--control-listen"

_log = logging.getLogger(__name__)


class Registry:
    """`serve` is for each connection that comes in. Lives on one event loop."""

    def __init__(self, fleet: Fleet, where: Whereabouts) -> None:
        self._fleet = fleet
        self._where = where
        self._roster = Roster(fleet.model)
        self._streams: dict[str, FrameStream[Leave]] = {}
        self._told: dict[str, Registered] = {}
        self._refused: dict[str, str] = {}

    async def run(self) -> None:
        """Tell decode workers of prefill workers whenever those change, until cancelled."""
        while True:
            await self._fleet.wait_for_change()
            for name in list(self._streams):
                self._tell(name)

    async def serve(self, sock: Connection) -> None:
        """One worker's registration, until it leaves or is lost."""
        said = await first_frame(sock, decode_register)
        stream: FrameStream[Leave] = FrameStream(sock, decode_leave, said.worker)
        try:
            if problem := self._why_not(said, stream, local=is_local(sock)):
                await self._refuse(said, stream, problem)
                return
            await self._keep(said, stream)
        finally:
            stream.close()

    def _why_not(self, said: Register, stream: FrameStream[Leave], *, local: bool) -> str:
        problem = self._roster.why_not(said, stream.identity, local=local)
        if problem:
            return problem
        others = [link for link in self._fleet.present if link.name == said.worker]
        elsewhere = [link for link in others if show_address(link.address) != said.address]
        return f"a worker {said.worker} is here already, at {show_address(elsewhere[0].address)}" if elsewhere else ""

    async def _refuse(self, said: Register, stream: FrameStream[Leave], problem: str) -> None:
        """Logged once: it comes again every second."""
        if self._refused.get(said.worker) != problem:
            if len(self._refused) >= MOST_WORKERS:
                self._refused.clear()
            self._refused[said.worker] = problem
            _log.warning("a worker is refused", extra=ids(worker_name=said.worker, reason=problem))
        stream.send(Refused(problem))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await stream.flush()

    async def _keep(self, said: Register, stream: FrameStream[Leave]) -> None:
        entry = self._enter(said, stream)
        left = False
        try:
            left = await stream.receive() is not None
        except PeerUnusable as error:
            _log.warning("a registration ended", extra=ids(worker_name=said.worker, reason=error))
        finally:
            if self._streams.get(said.worker) is stream:
                del self._streams[said.worker]
            self._end(entry, left=left)

    def _enter(self, said: Register, stream: FrameStream[Leave]) -> Entry:
        if (older := self._streams.pop(said.worker, None)) is not None:
            older.close()
        entry = self._roster.enter(said, stream.identity)
        self._refused.pop(said.worker, None)
        self._streams[said.worker] = stream
        self._told.pop(said.worker, None)
        _log.info("a worker registered", extra=ids(worker_name=said.worker, address=said.address))
        self._say()
        self._tell(said.worker)
        return entry

    def _end(self, entry: Entry, *, left: bool) -> None:
        entry.lost = True
        if not self._roster.has(entry):
            return
        _log.info("a worker left" if left else "a registration was lost", extra=ids(worker_name=entry.said.worker))
        if left:
            self._roster.forget(entry)
            self._say()
        else:
            self._forget_later(entry)

    def _forget_later(self, entry: Entry) -> None:
        asyncio.get_running_loop().call_later(FORGET_S, self._forget, entry)

    def _forget(self, entry: Entry) -> None:
        if not self._roster.has(entry):
            return
        if any(link.address == entry.address for link in self._fleet.present):
            self._forget_later(entry)
            return
        self._roster.forget(entry)
        self._say()

    def _say(self) -> None:
        self._where.say(SOURCE, {each.address: name for name, each in self._roster.entries.items()})

    def _tell(self, name: str) -> None:
        """A decode worker, of the prefill workers, unless it knows. Who does not read is disconnected."""
        entry, stream = self._roster.entries.get(name), self._streams[name]
        now = Registered()
        if entry is not None and entry.said.role == "decode":
            now = Registered(self._prefills(local=not isinstance(entry.address, TcpAddress)))
        if self._told.get(name) == now:
            return
        self._told[name] = now
        try:
            stream.send(now)
        except PeerUnusable as error:
            _log.warning("a registered worker does not read", extra=ids(worker_name=name, reason=error))

    def _prefills(self, *, local: bool) -> tuple[tuple[str, str], ...]:
        """Those that registered, and those that were found in other ways and have said who they are.

        Socket files concern a worker of this host alone.
        """
        found: dict[str, Address] = {
            link.name: link.address for link in self._fleet.present if link.welcome and link.welcome.role == "prefill"
        }
        entries = self._roster.entries.items()
        found |= {name: each.address for name, each in entries if each.said.role == "prefill"}
        within = {name: each for name, each in found.items() if local or isinstance(each, TcpAddress)}
        return tuple(sorted((name, show_address(address)) for name, address in within.items()))
