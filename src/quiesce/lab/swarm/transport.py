"""Launched writes: they land page by page, or late, or after their failure or their writer's death, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.ids import Attempt, Incarnation, Peer
from quiesce.lab.swarm.flights import Air, Flight
from quiesce.lab.swarm.ground import Ground, Tale
from quiesce.lab.swarm.memory import Memory
from quiesce.protocol.sender_io import Launch, Outcome

if TYPE_CHECKING:
    from quiesce.lab.swarm.prefill import PrefillRank


class Write(Flight):
    """Prefill writes. Its source is what it is when it is read; what a dead writer had sent, still comes."""

    __slots__ = ("launch",)

    def __init__(self, sender: PrefillRank, launch: Launch, memory: Memory, tale: Tale) -> None:
        super().__init__(sender, launch.key, int(launch.lease.tag), memory, tale)
        self.launch = launch
        self.number, self.first_page, self.request = launch.write, launch.first_page, launch.request

    @property
    def reads(self) -> bool:
        return not (self.shut or self.memory.over or self.sender.life.dead)

    def name(self) -> str:
        first, n = self.first_page, len(self.places)
        return f"write {self.tale.name} pages {first}+{n} from {self.sender.name} to {self.memory.where}"


class Writes(Air[Write]):
    """All writes of a cluster."""

    moved = "write"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._stores = ground.p.transport == "stores"
        self._shut: set[tuple[Incarnation, Attempt, Peer]] = set()

    def launch(self, flight: Write, index: int, decode_index: int) -> None:
        """Begin a write."""
        flight.shut = (flight.key.decode.incarnation, flight.key.attempt, flight.me) in self._shut
        self._begin(flight, index, decode_index)

    def _carried(self, flight: Write) -> int:
        if flight.sender.life.dead:
            return flight.texts[flight.at]
        return self._read(flight, flight.sender.memory)

    def _is_gone(self, flight: Write) -> bool:
        """Fenced, or a store of a processor that has stopped: not another byte of it lands."""
        if flight.shut:
            self._ground.marks.hit("fence keeps a write out")
            flight.outcome = Outcome.FAILED_IN_FLIGHT
            return True
        if flight.memory.over:
            self._ground.marks.hit("write comes to a segment that is over")
            return True
        return self._stores and flight.sender.life.dead

    def _report(self, flight: Write) -> None:
        """The writer learns an outcome, if it still lives."""
        flight.reported = True
        sender = flight.sender
        if not sender.life.dead:
            self._ground.loop.after(0.0, sender.life, flight.settled, flight.launch, flight.outcome)

    # ------------------------------------------------------------ ends

    def shut(self, life: Incarnation, attempt: Attempt, peer: Peer) -> None:
        """A fence at the receiver: nothing of this peer lands in this attempt's lease, ever."""
        self._shut.add((life, attempt, peer))
        for flight in self._flights.get((life, attempt), ()):
            if flight.me == peer:
                flight.shut = True

    def stop_stores(self, sender: PrefillRank) -> None:
        """A process is dead, and with it all its plain stores."""
        for flight in list(self.everything()):
            if flight.sender is sender:
                flight.shut = flight.reported = True
