"""Launched reads and the windows that they read through: served and landed page by page, or served early and landed
late, or after their failure or their lender's death, or never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.ids import AttemptKey, Incarnation, PageTag, Peer, RequestId
from quiesce.lab.swarm import fates
from quiesce.lab.swarm.flights import Air, Flight
from quiesce.lab.swarm.ground import Ground, Tale
from quiesce.protocol.puller_io import LaunchRead
from quiesce.protocol.sender_io import Outcome

if TYPE_CHECKING:
    from quiesce.lab.swarm.decode import DecodeWorker
    from quiesce.lab.swarm.prefill import PrefillRank


class Window:
    """Source pages of one prefill rank that decode may read, and what lay in them when they were lent."""

    __slots__ = ("is_shut", "request", "sources", "texts")

    def __init__(self, request: RequestId, sources: list[int], texts: list[int]) -> None:
        self.request, self.sources, self.texts = request, sources, texts
        self.is_shut = False


class Read(Flight):
    """Decode reads. `served` when all of it was taken at once, and only has to land."""

    __slots__ = ("launch", "reader", "served", "window")

    def __init__(
        self, reader: DecodeWorker, sender: PrefillRank, launch: LaunchRead, window: Window, tale: Tale
    ) -> None:
        rank = launch.decode_rank
        key = AttemptKey(reader.peers[rank], launch.attempt)
        super().__init__(sender, key, int(launch.target.tag), reader.memories[rank], tale)
        self.reader, self.launch, self.window, self.served = reader, launch, window, False
        self.number, self.first_page, self.request = launch.read, launch.first_page, window.request

    @property
    def reads(self) -> bool:
        return not (self.shut or self.served or self.window.is_shut or self.reader.life.dead)

    def name(self) -> str:
        first, n = self.first_page, len(self.places)
        return f"read {self.tale.name} pages {first}+{n} from {self.sender.name} to {self.memory.where}"


class Reads(Air[Read]):
    """All reads of a cluster, and all windows. `can_revoke`: what is shut serves nobody; without it, windows are words.

    `serves_shut` is for mutants: the transport says that it revoked, and serves on.
    """

    moved = "read"

    def __init__(self, ground: Ground, *, serves_shut: bool) -> None:
        super().__init__(ground)
        self.can_revoke = ground.p.fence
        self._serves_shut = serves_shut
        self._survives_death = ground.p.transport == "stores"
        self._windows: dict[tuple[Peer, PageTag], Window] = {}

    # ------------------------------------------------------------ windows

    def lend(self, me: Peer, tag: PageTag, window: Window) -> None:
        self._windows[me, tag] = window

    def window(self, me: Peer, tag: PageTag) -> Window | None:
        """An open one; None when nothing is lent by that name, or not any more."""
        return self._windows.get((me, tag))

    def revoke(self, me: Peer, tag: PageTag) -> bool:
        """Whether it is a fact now that no read of it takes a byte any more."""
        if self.can_revoke:
            self._ground.marks.hit("window revoked")
            self.take_back(me, tag)
        return self.can_revoke

    def take_back(self, me: Peer, tag: PageTag) -> None:
        window = self._windows.pop((me, tag), None)
        if window is not None:
            window.is_shut = self.can_revoke and not self._serves_shut

    # ------------------------------------------------------------ reads

    def launch(self, flight: Read) -> None:
        """Begin a read."""
        self._begin(flight, flight.sender.worker.index, flight.reader.index)

    def _late(self, flight: Read, fate: fates.Key, late_s: float) -> float:
        """Half of those that land late were served at once: what the lender does to its pages is nothing to them."""
        if self._ground.fates.unit(fates.SERVED, fate) < 0.5:
            self._ground.marks.hit("read is served early and lands late")
            flight.served = True
        return late_s

    def _carried(self, flight: Read) -> int:
        if flight.served:
            return flight.texts[flight.at]
        return self._read(flight, flight.sender.memory)

    def _is_gone(self, flight: Read) -> bool:
        """Its endpoint was joined, its reader is dead, or nobody serves it."""
        if flight.shut:
            self._ground.marks.hit("closed endpoint keeps a read out")
            return True
        if flight.memory.gone and flight.memory.heir is None:
            return True
        return not flight.served and self._is_refused(flight)

    def _is_refused(self, flight: Read) -> bool:
        heir = flight.sender.memory.heir
        if heir is not None:
            self._read(flight, heir)
        broken = flight.sender.life.dead and not self._survives_death and heir is None
        if not (broken or flight.window.is_shut):
            return False
        self._ground.marks.hit("read breaks off with its lender" if broken else "shut window refuses a read")
        if flight.outcome is Outcome.LANDED:
            flight.outcome = Outcome.FAILED_QUIESCED
        return True

    def _report(self, flight: Read) -> None:
        """The reader learns an outcome, if it still lives and its endpoint is the same."""
        reader = flight.reader
        if not (reader.life.dead or (flight.reported and flight.shut)):
            self._ground.loop.after(0.0, reader.life, flight.settled, flight.launch, flight.outcome)
        flight.reported = True

    # ------------------------------------------------------------ ends

    def under_way(self, life: Incarnation) -> list[Read]:
        return [each for each in self.everything() if each.key.decode.incarnation == life and not each.shut]

    def join(self, life: Incarnation) -> None:
        """A decode life closed and joined its endpoint: nothing that it launched lands, and nothing is reported."""
        for flight in self.under_way(life):
            flight.shut = flight.reported = True
