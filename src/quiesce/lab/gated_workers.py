"""Prefill and decode workers whose every input waits at a gate."""

from __future__ import annotations

import asyncio
from functools import partial

from quiesce.errors import UsageError
from quiesce.ids import Attempt, AttemptKey, Peer
from quiesce.lab.explorer.local_moves import ENDED_BY_CLIENT
from quiesce.lab.gate import (
    Arm,
    Disarm,
    FailInFlight,
    Fire,
    Forge,
    Gate,
    GateOrder,
    Land,
    Landed,
    Let,
    Lose,
    WriteGate,
)
from quiesce.lab.gated_placement import GatedPlacement
from quiesce.protocol.dispatch import Cancel, Submit
from quiesce.protocol.messages import AbortAck, Envelope
from quiesce.protocol.reasons import kind_of
from quiesce.protocol.receiver_io import (
    FenceProved,
    PeerReplaced,
    Received,
    StreamLost,
    Timer,
    TimerFired,
)
from quiesce.protocol.sender_io import (
    ChunkComputed,
    DecodeLost,
    DecodeReplaced,
    Heard,
    Outcome,
    SenderTimerFired,
    WriteSettled,
)
from quiesce.worker.decode import DecodeWorker
from quiesce.worker.intake import DecodeInput, MakeIntake
from quiesce.worker.links import Link
from quiesce.worker.outlet import MakeOutlet, PrefillInput
from quiesce.worker.parts import Parts
from quiesce.worker.prefill import PrefillWorker
from quiesce.worker.push_intake import PushIntake
from quiesce.worker.push_outlet import PushOutlet


def obey_gate(gate: Gate, order: GateOrder) -> bool:
    """Carry out what every gate understands; False for the rest."""
    match order:
        case Arm(mutant):
            gate.arm(mutant)
        case Disarm():
            gate.disarm()
        case Let(serial, stays):
            gate.let(serial, stays=stays)
        case Lose(serial):
            gate.lose(serial)
        case Land(serial, torn):
            gate.land(serial, torn=torn)
        case _:
            return False
    return True


class GatedPrefill(PrefillWorker):
    """Halves of requests, cancels, messages, computed chunks, clocks and writes wait."""

    def __init__(self, parts: Parts, make_outlet: MakeOutlet, gate: Gate, placement: GatedPlacement) -> None:
        super().__init__(parts, make_outlet)
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._held: dict[tuple[AttemptKey, int], int] = {}
        placement.announce = self._announce

    def submit(self, frame: Submit, link: Link) -> None:
        self._gate.hold(lambda: super(GatedPrefill, self).submit(frame, link), "submit", request=frame.request)

    def cancel(self, frame: Cancel, link: Link) -> None:
        self._gate.hold(lambda: super(GatedPrefill, self).cancel(frame, link), "cancel", request=frame.request)

    def feed(self, event: PrefillInput) -> None:
        go = partial(super().feed, event)
        match event:
            case Heard(envelope=envelope):
                self._gate.hold(go, "message", kind=kind_of(envelope.body), attempt=envelope.attempt)
            case ChunkComputed(request=request):
                self._gate.hold(go, "compute", request=request)
            case SenderTimerFired(timer=timer):
                self._gate.hold(go, "clock", kind=timer.name)
            case DecodeLost() | DecodeReplaced():
                self._gate.hold(go, "notice", kind=type(event).__name__)
            case WriteSettled(key=key, write=write):
                go()
                if serial := self._held.pop((key, write), 0):
                    self._gate.tell(Landed(serial))
            case _:
                go()

    def _announce(self, write: int, gate: WriteGate) -> None:
        """In a transfer thread: a write has its bytes in hand."""
        self._loop.call_soon_threadsafe(self._hold_write, write, gate)

    def _hold_write(self, write: int, gate: WriteGate) -> None:
        if not isinstance(self.outlet, PushOutlet):
            raise UsageError("Gates hold writes: they need --transfer push.")
        key, number, job = self.outlet.executor._writes[write]
        self._held[key, number] = self._gate.hold_write(gate, job.request.id)

    def obey(self, order: GateOrder) -> None:
        """Raises whatever went wrong."""
        if obey_gate(self._gate, order) or not isinstance(order, FailInFlight):
            return
        key, number = next(which for which, serial in self._held.items() if serial == order.serial)
        super().feed(WriteSettled(key, number, Outcome.FAILED_IN_FLIGHT))


class GatedDecode(DecodeWorker):
    """Halves of requests, cancels, messages, clocks and what is learnt of peers wait."""

    def __init__(self, parts: Parts, make_intake: MakeIntake, gate: Gate) -> None:
        super().__init__(parts, make_intake)
        self._gate = gate

    def submit(self, frame: Submit, link: Link) -> None:
        self._gate.hold(lambda: super(GatedDecode, self).submit(frame, link), "submit", request=frame.request)

    def cancel(self, frame: Cancel, link: Link) -> None:
        """A story's requests end as the explorer's do, by the same reason: mutants look at it."""
        told = Cancel(frame.request, ENDED_BY_CLIENT) if self._gate.armed else frame
        self._gate.hold(lambda: super(GatedDecode, self).cancel(told, link), "cancel", request=frame.request)

    def feed(self, event: DecodeInput) -> None:
        go = partial(super().feed, event)
        match event:
            case Received(envelope=envelope):
                self._gate.hold(go, "message", kind=kind_of(envelope.body), attempt=envelope.attempt)
            case TimerFired(attempt=attempt, timer=timer):
                self._gate.hold(go, "clock", kind=timer.name, attempt=attempt)
            case StreamLost() | PeerReplaced() | FenceProved():
                self._gate.hold(go, "notice", kind=type(event).__name__)
            case _:
                go()

    def obey(self, order: GateOrder) -> None:
        """Raises whatever went wrong."""
        if obey_gate(self._gate, order):
            return
        match order:
            case Fire(attempt, timer):
                super().feed(TimerFired(Attempt(attempt), Timer[timer]))
            case Forge(attempt):
                if not isinstance(self.intake, PushIntake):
                    raise UsageError("Gates forge what a writer says: they need --transfer push.")
                prefill = self.intake.driver.state.attempts[Attempt(attempt)].grants[0]
                me = Peer(0, self.parts.incarnation)
                self.feed(Received(Envelope(prefill, me, Attempt(attempt), AbortAck())))
