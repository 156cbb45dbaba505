"""The door where workers announce themselves, and what follows: the router dials them, decode hears of prefill."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from quiesce.control.address import Address, TcpAddress, parse_address, place_of, show_address
from quiesce.control.connection import Connection, is_local
from quiesce.control.plain_text import shown
from quiesce.control.registration_codec import MAX_REASON_CHARS, MOST_UNFIT, decode_leave, decode_register
from quiesce.control.single_frame import first_frame
from quiesce.control.stream import FrameStream
from quiesce.control.tcp import End, ends
from quiesce.control.whereabouts import Whereabouts
from quiesce.errors import BadFrame, PeerUnusable
from quiesce.protocol.dispatch import Welcome
from quiesce.protocol.registration import Leave, Refused, Register, Registered
from quiesce.router.fleet import Fleet
from quiesce.router.link import WorkerLink
from quiesce.router.own_places import OwnPlaces
from quiesce.router.roster import Entry, Roster
from quiesce.telemetry.logs import ids

FORGET_S = 60.0
"""How long a worker that was lost is still dialled; one that is connected is not forgotten."""
_GOODBYE_S = 1.0
_TOLD_PER_TURN = 32
SOURCE = "--control-listen"

_log = logging.getLogger(__name__)


class Registry:
    """`serve` is for each connection that comes in; `count` hears how each registration began and ended. `own` has to
    be told where it listens.

    Lives on one event loop.
    """

    def __init__(self, fleet: Fleet, where: Whereabouts, count: Callable[[str], None] = lambda outcome: None) -> None:
        self._fleet = fleet
        self._where = where
        self._count = count
        self._roster = Roster(fleet.model)
        self._streams: dict[str, FrameStream[Leave]] = {}
        self._told: dict[str, Registered] = {}
        self._known: dict[str, Address] = {}
        self._near = {local: Registered() for local in (False, True)}
        self._news = asyncio.Event()
        self.own = OwnPlaces()
        self._goodbyes: set[asyncio.Task[None]] = set()
        fleet.claimed = self._answered

    async def run(self) -> None:
        """Tell the fleet who is registered and workers of each other, whenever that changes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._follow())

    async def _watch(self) -> None:
        while True:
            await self._fleet.wait_for_change()
            if self._prefills() != self._known:
                self._news.set()

    async def _follow(self) -> None:
        """Whatever came together, or while others were being told, is one change."""
        while True:
            await self._news.wait()
            self._news.clear()
            self._settle()
            await self._tell_all()

    async def serve(self, sock: Connection) -> None:
        """One worker's registration, until it leaves or is lost."""
        both = ends(sock)
        try:
            said = await first_frame(sock, decode_register)
        except BadFrame:
            if both:
                self._look_for_us(both)
            raise
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
        address = parse_address(said.address)
        if self.own.holds(address):
            return _ours(address)
        place = place_of(address)
        for link in self._fleet.present:
            if (place_of(link.address) == place) != (link.name == said.worker):
                where = show_address(link.address)
                return f"{where} is where {link.name} answers" if link.name != said.worker else _is_here(link)
        return ""

    def _look_for_us(self, both: tuple[End, End]) -> None:
        """Who said something else than a worker does may be this router, at an address that it was told to dial: then
        a link of ours is the other side of this very connection."""
        for link in [each for each in self._fleet.links if each.ends == both[::-1]]:
            self.own.find(link.address)
            for entry in self._roster.at(link.address):
                self._refute(entry, _ours(link.address))
            self._news.set()

    async def _refuse(self, said: Register, stream: FrameStream[Leave], problem: str) -> None:
        """Logged once: it comes again every second."""
        self._count("refused")
        if self._fleet.objections.refuse(shown(said.worker), problem):
            self._say(logging.WARNING, "a worker is refused", said, reason=problem)
        with contextlib.suppress(PeerUnusable, TimeoutError):
            stream.send(Refused(problem))
            async with asyncio.timeout(_GOODBYE_S):
                await stream.flush()

    def _say(self, level: int, what: str, said: Register, **told: object) -> None:
        """In the log, but not again and again of a worker that comes and goes."""
        subject = f"registration {said.worker} {told.get('peer', '')}"
        if (unsaid := self._fleet.restraint.unsaid(subject)) is not None:
            _log.log(level, what, extra=ids(worker_name=said.worker, unsaid=unsaid or None, **told))

    async def _keep(self, said: Register, stream: FrameStream[Leave]) -> None:
        entry = self._enter(said, stream)
        left = False
        try:
            left = await stream.receive() is not None
        except PeerUnusable as error:
            self._say(logging.WARNING, "a registration ended", said, reason=error)
        finally:
            if self._streams.get(said.worker) is stream:
                del self._streams[said.worker]
                self._told.pop(said.worker, None)
            self._end(entry, left=left)

    def _enter(self, said: Register, stream: FrameStream[Leave]) -> Entry:
        if (older := self._streams.pop(said.worker, None)) is not None:
            older.close()
        entry = self._roster.enter(said, stream.identity)
        entry.proved = any(link.address == entry.address and link.name == said.worker for link in self._fleet.present)
        self._count("registered")
        self._fleet.objections.take(said.worker)
        self._streams[said.worker] = stream
        self._told.pop(said.worker, None)
        self._say(logging.INFO, "a worker registered", said, address=said.address)
        self._tell(said.worker)  # at once, however many others are being told
        self._news.set()
        return entry

    def _end(self, entry: Entry, *, left: bool) -> None:
        self._roster.lose(entry)
        self._count("left" if left else "lost")
        if not self._roster.has(entry):
            return
        self._say(logging.INFO, "a worker left" if left else "a registration was lost", entry.said)
        if left:
            self._roster.forget(entry)
        else:
            self._forget_later(entry)
        self._news.set()

    def _forget_later(self, entry: Entry) -> None:
        asyncio.get_running_loop().call_later(FORGET_S, self._forget, entry)

    def _forget(self, entry: Entry) -> None:
        if not self._roster.has(entry):
            return
        if any(link.address == entry.address for link in self._fleet.present):
            self._forget_later(entry)
            return
        self._roster.forget(entry)
        self._news.set()

    # ------------------------------------------------------------ who is where

    def _answered(self, link: WorkerLink, welcome: Welcome) -> str:
        """A worker answered where some say that they are dialled: it is one of them, and the others are not there.

        Why it must not be used there, or "": where nobody but those others said that it is, it would be in the way of
        its own registration.
        """
        claims = self._roster.at(link.address)
        right = [each for each in claims if (each.said.worker, each.said.role) == (welcome.worker, welcome.role)]
        wrong = [each for each in claims if each not in right]
        for entry in right:
            entry.proved = True
        problem = f"{show_address(link.address)} is where {welcome.worker} answers"
        for entry in wrong:
            self._refute(entry, problem)
        if claims:
            self._news.set()
        elsewhere = link.address in self._where.besides(SOURCE)
        return f"{problem}, and nobody said so" if wrong and not right and not elsewhere else ""

    def _refute(self, entry: Entry, problem: str) -> None:
        """It is not where it says, and gives way to who is."""
        self._roster.forget(entry)
        if (stream := self._streams.pop(entry.said.worker, None)) is None:
            return
        goodbye = asyncio.ensure_future(self._refuse(entry.said, stream, problem))
        self._goodbyes.add(goodbye)
        goodbye.add_done_callback(self._goodbyes.discard)
        goodbye.add_done_callback(lambda _: stream.close())

    def _settle(self) -> None:
        """Who there is goes to the fleet, and who does not fit whom to the operator."""
        self._where.say(SOURCE, {each.address: name for name, each in self._roster.entries.items()})
        unfit = self._roster.unfit()
        for decode, prefill in self._fleet.objections.find_unfit(SOURCE, unfit):
            if (decode, prefill) in unfit:
                said, reason = self._roster.entries[decode].said, unfit[decode, prefill]
                self._say(logging.WARNING, "a pair is not formed", said, peer=prefill, reason=reason)

    async def _tell_all(self) -> None:
        """Everybody, a few at a time: what is told is D x P names, and clients wait for the same loop."""
        self._known = self._prefills()
        self._near = {local: Registered(_places(self._known, local=local)) for local in (False, True)}
        for number, name in enumerate(list(self._streams)):
            if number % _TOLD_PER_TURN == 0:
                await asyncio.sleep(0)
            if name in self._streams:
                self._tell(name)

    def _tell(self, name: str) -> None:
        """A worker of who does not fit it, a decode worker of the prefill workers too, unless it knows. Who does not
        read is disconnected."""
        entry = self._roster.entries[name]
        now = self._news_for(entry)
        if self._told.get(name) == now:
            return
        self._told[name] = now
        try:
            self._streams[name].send(now)
        except PeerUnusable as error:
            self._say(logging.WARNING, "a registered worker does not read", entry.said, reason=error)

    def _news_for(self, entry: Entry) -> Registered:
        matching, worker = self._roster.matching, entry.said.worker
        unfit = matching.unfit_with(worker)
        told = tuple((name, matching.why(worker, name)[:MAX_REASON_CHARS]) for name in sorted(unfit)[:MOST_UNFIT])
        if entry.said.role != "decode":
            return Registered((), told)
        # Socket files concern a worker of this host alone.
        near = self._near[not isinstance(entry.address, TcpAddress)]
        if not unfit:
            return near  # one for all: what is the same object is not compared
        return Registered(tuple(place for place in near.prefills if place[0] not in unfit), told)

    def _prefills(self) -> dict[str, Address]:
        """Where prefill workers are: those that answered where they registered, and those that were found in other
        ways and have said who they are."""
        found: dict[str, Address] = {
            link.name: link.address for link in self._fleet.present if link.welcome and link.welcome.role == "prefill"
        }
        entries = self._roster.entries.items()
        return found | {name: each.address for name, each in entries if each.said.role == "prefill" and each.proved}


def _is_here(link: WorkerLink) -> str:
    return f"a worker {link.name} is here already, at {show_address(link.address)}"


def _ours(address: Address) -> str:
    return f"{show_address(address)} is this router's own {SOURCE}, where no worker can be: --advertise another address"


def _places(known: Mapping[str, Address], *, local: bool) -> tuple[tuple[str, str], ...]:
    """Names and addresses, in one order; socket files for this host's own alone."""
    near = {name: each for name, each in known.items() if local or isinstance(each, TcpAddress)}
    return tuple(sorted((name, show_address(address)) for name, address in near.items()))
