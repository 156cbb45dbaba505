"""Where the two HTTP requests of one hand-off meet: decode's leg is the request, prefill's leg waits for its half."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterator

from quiesce.errors import RequestRejected
from quiesce.protocol.messages import Fault
from quiesce.router.failures import GenerationFailed
from quiesce.router.pairs import Pair

MEETING_S = 30.0
"""How long prefill's leg waits for decode's. Nothing exists for it yet but an open connection."""

MOST_REMEMBERED = 4096
"""Legs that are over: prefill's leg may come later than a short answer is finished."""

Rooms = tuple[int, ...]


class Leg:
    """Decode's leg of one request on `pair` (None: it was refused before there was one).

    `over` is set when prefill's half is done: every answer has begun, or the request has ended. `trouble` is what
    prefill's leg is told instead; None when prefill is not to blame.
    """

    def __init__(self, pair: Pair | None, rooms: Rooms) -> None:
        self.pair = pair
        self.rooms = rooms
        self.handed_off = False
        self.over = asyncio.Event()
        self.trouble: RequestRejected | None = None
        self._left = 1

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of those that serve it."""
        return () if self.pair is None else tuple(link.name for link in self.pair.workers)

    def expect(self, answers: int) -> None:
        self._left = answers

    def begun(self) -> None:
        """One answer's first token came, so its hand-off is complete."""
        self._left -= 1
        if self._left <= 0:
            self.handed_off = True
            self.over.set()

    def refused(self, error: RequestRejected) -> None:
        """What is wrong with a request is told to both; that decode cannot serve now is no fault of prefill."""
        self.trouble = error if error.status < 500 else None
        self.over.set()

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Prefill's leg learns what became of decode's."""
        try:
            yield
        except RequestRejected as error:
            self.refused(error)
            raise
        except GenerationFailed as error:
            failure = error.failure
            if failure.fault in (Fault.PREFILL, Fault.CLIENT):
                self.trouble = RequestRejected(failure.message, code=failure.code, status=failure.status)
            raise
        finally:
            self.over.set()


class Meetings:
    """All legs that are under way, by their rooms, and the latest that are over. Lives on one event loop."""

    def __init__(self) -> None:
        self._legs: dict[Rooms, Leg] = {}
        self._over: OrderedDict[Rooms, Leg] = OrderedDict()
        self._came = asyncio.Event()

    @contextlib.contextmanager
    def held(self, leg: Leg) -> Iterator[None]:
        """Raises RequestRejected for rooms that are in use: two requests must not take each other's prefill's word."""
        if leg.rooms in self._legs:
            message = "A request with this bootstrap_room is under way; each try needs a fresh one."
            raise RequestRejected(message, code="room_in_use", status=409, param="bootstrap_room")
        self._legs[leg.rooms] = leg
        self._wake()
        try:
            yield
        finally:
            self._remember(self._legs.pop(leg.rooms))

    def refuse(self, rooms: Rooms, error: RequestRejected) -> None:
        """Decode's leg ended before it began."""
        leg = Leg(None, rooms)
        leg.refused(error)
        self._remember(leg)
        self._wake()

    async def leg(self, rooms: Rooms) -> Leg:
        """The one with these rooms, which may be over. Raises RequestRejected (504) when none comes."""
        try:
            async with asyncio.timeout(MEETING_S):
                while (leg := self._legs.get(rooms) or self._over.get(rooms)) is None:
                    await self._came.wait()
        except TimeoutError:
            message = f"No decode worker was asked for this bootstrap_room within {MEETING_S:g} s."
            raise RequestRejected(message, code="other_half_missing", status=504, param="bootstrap_room") from None
        return leg

    def _wake(self) -> None:
        came, self._came = self._came, asyncio.Event()
        came.set()

    def _remember(self, leg: Leg) -> None:
        self._over[leg.rooms] = leg
        self._over.move_to_end(leg.rooms)
        while len(self._over) > MOST_REMEMBERED:
            self._over.popitem(last=False)
