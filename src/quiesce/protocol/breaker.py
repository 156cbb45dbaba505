"""The router's circuit breaker for one worker's life, or for the two lives of a pair: may clients be sent there?

`step(state, fact, enough) -> (state', effects)`, pure like the other machines.

Failures are attributed before they come here: `blamed` names the half whose own failure it was, or both halves when it
happened between them; what clients, the router or a full queue cause is nobody's. A request counts once, however
often it is tried, and so does a prompt that is sent again and again.

Even so, failures that stem from one tenant may be in what it asks: they only make a peer *suspected*. Suspected
means: asked last, and probed. The probe is the router's own generation, which nobody poisons: it alone, or failures of
several tenants, opens a breaker, and it alone closes one again. So poison costs a probe, never a peer. Time never moves
a breaker; it only begins the next probe.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.pairing import Side


class Phase(StrEnum):
    CLOSED = "closed"  # clients are sent there
    SUSPECTED = "suspected"  # where nobody else can serve them; a probe is due
    OPEN = "open"  # nobody is sent there; a probe is due
    HALF_OPEN = "half_open"  # nobody is sent there; a probe is under way


class Cause(msgspec.Struct, frozen=True):
    """What failed: whose request, and a digest of its prompt."""

    tenant: str
    digest: str


class Breaker(msgspec.Struct, frozen=True):
    """`causes` are those of failures in a row, each once; `failed_probes` those since it was closed."""

    phase: Phase = Phase.CLOSED
    causes: tuple[Cause, ...] = ()
    failed_probes: int = 0


# ---------------------------------------------------------------- facts


class Failed(msgspec.Struct, frozen=True):
    """A client's request failed by this peer's own fault, at its first try."""

    cause: Cause


class Served(msgspec.Struct, frozen=True):
    """A client's request was answered."""


class ProbeBegan(msgspec.Struct, frozen=True):
    pass


class ProbePassed(msgspec.Struct, frozen=True):
    pass


class ProbeFailed(msgspec.Struct, frozen=True):
    """By this peer's own fault, or it had no answer in its time."""


class ProbeEnded(msgspec.Struct, frozen=True):
    """It said nothing about this peer: the queue was full, or the other half failed."""


BreakerFact = Failed | Served | ProbeBegan | ProbePassed | ProbeFailed | ProbeEnded

# ---------------------------------------------------------------- effects


class Moved(msgspec.Struct, frozen=True):
    """The breaker is in another phase now."""

    phase: Phase


class WantProbe(msgspec.Struct, frozen=True):
    """Begin a probe: at once in round 0, later each round."""

    round: int


BreakerEffect = Moved | WantProbe
Next = tuple[Breaker, tuple[BreakerEffect, ...]]

# ---------------------------------------------------------------- who is to blame

ECHOES = frozenset({"aborted", "attempt_closed", "fenced"})
"""What prefill says when decode has ended the hand-off: the reason is what decode says."""

DRAINING = "worker_draining"
ORDERLY = frozenset({DRAINING, "pool_quarantined", "no_lease"})
"""A peer that says no in good order; its load says so too. Who waits for room in vain was failed by nobody."""

BETWEEN = frozenset({"stream_lost", "decode_lost", "prefill_lost", "pair_unavailable", "handoff_timeout"})
"""Each half says these of the other one."""

_BLAMED: dict[Fault, tuple[Side, ...]] = {
    Fault.PREFILL: (Side.PREFILL,),
    Fault.DECODE: (Side.DECODE,),
    Fault.TRANSPORT: (Side.PREFILL, Side.DECODE),
    Fault.QUIESCE: (Side.DECODE,),  # an aggregated worker's word
}


def blamed(failure: Failure) -> tuple[Side, ...]:
    """Whose own failure it was: one half's, something between both, or nobody's here."""
    if failure.status < 500 or failure.code in ECHOES | ORDERLY:
        return ()
    if failure.code in BETWEEN and failure.fault in _BLAMED:
        return (Side.PREFILL, Side.DECODE)
    return _BLAMED.get(failure.fault, ())


# ---------------------------------------------------------------- the machine


def admits(breaker: Breaker) -> bool:
    """Whether a client's request may be sent there."""
    return breaker.phase in (Phase.CLOSED, Phase.SUSPECTED)


def step(state: Breaker, fact: BreakerFact, enough: int) -> Next:
    """The next state and what to do; `enough` failures in a row are too many."""
    match fact:
        case Failed(cause=cause):
            return _failed(state, cause, enough)
        case Served():
            return _close(state) if admits(state) else (state, ())
        case ProbeBegan():
            return _move(state, Phase.HALF_OPEN) if state.phase is Phase.OPEN else (state, ())
        case ProbePassed():
            return _close(state)
        case ProbeFailed():
            return _probe_failed(state)
        case ProbeEnded():
            return _probe_ended(state)
        case _:  # pragma: no cover
            assert_never(fact)


def counts(state: Breaker, cause: Cause) -> bool:
    """Not while nobody should be sent there, and not the same prompt again."""
    return admits(state) and cause not in state.causes


def is_proof(causes: tuple[Cause, ...]) -> bool:
    """Failures of several tenants: it is not what one of them asks."""
    return len({cause.tenant for cause in causes}) > 1


def _failed(state: Breaker, cause: Cause, enough: int) -> Next:
    if not counts(state, cause):
        return state, ()
    causes = (*state.causes, cause)
    if len(causes) >= enough and is_proof(causes):
        return _move(replace(state, causes=causes), Phase.OPEN, WantProbe(0))
    if state.phase is Phase.SUSPECTED:  # one tenant more would be news, one prompt more is not
        return state, ()
    state = replace(state, causes=causes)
    return _move(state, Phase.SUSPECTED, WantProbe(0)) if len(causes) >= enough else (state, ())


def _probe_failed(state: Breaker) -> Next:
    """One failed probe is a suspicion, two are enough; one is enough about who is suspected."""
    failed = replace(state, failed_probes=state.failed_probes + 1)
    phase = Phase.SUSPECTED if state.phase is Phase.CLOSED else Phase.OPEN
    return _move(failed, phase, WantProbe(failed.failed_probes))


def _probe_ended(state: Breaker) -> Next:
    if state.phase is Phase.CLOSED:
        return state, ()
    phase = Phase.OPEN if state.phase is Phase.HALF_OPEN else state.phase
    return _move(state, phase, WantProbe(max(1, state.failed_probes)))


def _close(state: Breaker) -> Next:
    return Breaker(), (Moved(Phase.CLOSED),) if state.phase is not Phase.CLOSED else ()


def _move(state: Breaker, phase: Phase, *effects: BreakerEffect) -> Next:
    moved = (Moved(phase),) if phase is not state.phase else ()
    return replace(state, phase=phase), (*moved, *effects)
