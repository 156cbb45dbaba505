"""The router's machine for one try: two halves, sent at once, that live and die together (PROTOCOL section 5).

`step(state, fact) -> (state', effects)`, pure like the workers' machines. Whoever learns first tells the other half.
Before the first token has reached the client a fresh try may follow; after it, never. An answer that is kept until it
is whole has reached nobody before. `choose` is the policy that picks the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from quiesce.protocol.messages import Failure, Fault


class Side(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"


class Half(StrEnum):
    """Where one half is. `DONE` and `FAILED` are ends: nothing more is sent to it or expected from it."""

    SUBMITTED = "submitted"
    ACCEPTED = "accepted"
    STREAMING = "streaming"  # decode only: the first token is out
    DONE = "done"
    FAILED = "failed"


ENDED = frozenset({Half.DONE, Half.FAILED})


class Try(msgspec.Struct, frozen=True):
    """One try of one request. `over`: the client was told how it ended, and nothing more follows.

    `leaving` is why its client left, while the hand-off may still finish. `kept`: the router shows nothing of the
    answer before it has all of it.
    """

    prefill: Half = Half.SUBMITTED
    decode: Half = Half.SUBMITTED
    over: bool = False
    leaving: Failure | None = None
    kept: bool = False


# ---------------------------------------------------------------- facts


class HalfAccepted(msgspec.Struct, frozen=True):
    side: Side


class HalfFailed(msgspec.Struct, frozen=True):
    """A half ended without an answer: its door rejected it, or it failed, or its worker's stream was lost."""

    side: Side
    failure: Failure


class TokensCame(msgspec.Struct, frozen=True):
    """Decode sent tokens; `last` with the final ones."""

    last: bool = False


class HandOffDone(msgspec.Struct, frozen=True):
    """Prefill's half is complete."""


class Stopped(msgspec.Struct, frozen=True):
    """The router has all it wants (a stop string matched): a good end that decode does not know of yet."""

    failure: Failure


class CallOff(msgspec.Struct, frozen=True):
    """The client left, the request's deadline passed, or the router shuts down."""

    failure: Failure


class ClientLeft(msgspec.Struct, frozen=True):
    """The client left, and a hand-off that is under way is to finish first: then its pages need no hold."""

    failure: Failure


TryFact = HalfAccepted | HalfFailed | TokensCame | HandOffDone | Stopped | CallOff | ClientLeft

# ---------------------------------------------------------------- effects


class CancelHalf(msgspec.Struct, frozen=True):
    """Send Cancel to this half."""

    side: Side
    failure: Failure


class Answered(msgspec.Struct, frozen=True):
    """The client has its whole answer."""


class GaveUp(msgspec.Struct, frozen=True):
    """The try failed; tell the client, or try again on another pair in a fresh room if `may_retry`."""

    failure: Failure
    may_retry: bool


class Disregarded(msgspec.Struct, frozen=True):
    """The fact changed nothing: it is late, or repeats what is known."""


TryEffect = CancelHalf | Answered | GaveUp | Disregarded


def start(*, kept: bool = False) -> Try:
    """Both halves were just submitted."""
    return Try(kept=kept)


def step(state: Try, fact: TryFact) -> tuple[Try, tuple[TryEffect, ...]]:
    """The next state and what to do, in that order."""
    if state.over:
        return state, (Disregarded(),)
    match fact:
        case HalfAccepted(side=side):
            return _accepted(state, side)
        case TokensCame(last=last):
            return _answered(state) if last else _tokens(state)
        case HandOffDone():
            return replace(state, prefill=Half.DONE), ()
        case HalfFailed(side=side, failure=failure):
            return _half_failed(state, side, failure)
        case Stopped(failure=failure):
            return _stopped(state, failure)
        case CallOff(failure=failure):
            return _gave_up(state, failure, cancel=tuple(Side), retry=False)
        case ClientLeft(failure=failure):
            return _client_left(state, failure)
        case _:  # pragma: no cover
            assert_never(fact)


def may_retry(state: Try, failure: Failure) -> bool:
    """Only before the client has any of it, only if the fault is not its own, and only if somebody waits for it."""
    shown = state.decode is Half.STREAMING and not state.kept
    return not shown and failure.fault is not Fault.CLIENT and state.leaving is None


def is_fatal(state: Try, side: Side) -> bool:
    """Prefill's failure matters no more once decode streams: it has committed then."""
    return side is Side.DECODE or state.decode is not Half.STREAMING


def half(state: Try, side: Side) -> Half:
    return state.prefill if side is Side.PREFILL else state.decode


def _with(state: Try, side: Side, value: Half) -> Try:
    return replace(state, prefill=value) if side is Side.PREFILL else replace(state, decode=value)


def _accepted(state: Try, side: Side) -> tuple[Try, tuple[TryEffect, ...]]:
    if half(state, side) is not Half.SUBMITTED:
        return state, (Disregarded(),)
    return _with(state, side, Half.ACCEPTED), ()


def _half_failed(state: Try, side: Side, failure: Failure) -> tuple[Try, tuple[TryEffect, ...]]:
    if half(state, side) in ENDED:
        return state, (Disregarded(),)
    failed = _with(state, side, Half.FAILED)
    if not is_fatal(state, side):
        return failed, ()
    other = Side.DECODE if side is Side.PREFILL else Side.PREFILL
    return _gave_up(failed, failure, cancel=(other,), retry=may_retry(state, failure))


def _gave_up(state: Try, failure: Failure, cancel: tuple[Side, ...], retry: bool) -> tuple[Try, tuple[TryEffect, ...]]:
    ended, cancels = _cancel(state, failure, cancel)
    return replace(ended, over=True), (*cancels, GaveUp(failure, retry))


def _cancel(state: Try, failure: Failure, sides: tuple[Side, ...]) -> tuple[Try, tuple[TryEffect, ...]]:
    """Tell the halves that have not ended."""
    effects: list[TryEffect] = []
    for side in sides:
        if half(state, side) not in ENDED:
            state = _with(state, side, Half.FAILED)
            effects.append(CancelHalf(side, failure))
    return state, tuple(effects)


def is_committed(state: Try) -> bool:
    """The first tokens are decode's word for it: prefill's half may be complete before decode has verified it."""
    return state.decode is Half.STREAMING


def _tokens(state: Try) -> tuple[Try, tuple[TryEffect, ...]]:
    streaming = replace(state, decode=Half.STREAMING)
    if state.leaving is None:
        return streaming, ()
    return _gave_up(streaming, state.leaving, cancel=tuple(Side), retry=False)


def _client_left(state: Try, failure: Failure) -> tuple[Try, tuple[TryEffect, ...]]:
    if is_committed(state):
        return _gave_up(state, failure, cancel=tuple(Side), retry=False)
    if state.leaving is not None:
        return state, (Disregarded(),)
    return replace(state, leaving=failure), ()


def _answered(state: Try) -> tuple[Try, tuple[TryEffect, ...]]:
    """Decode's last token is in. Prefill's own report may still be under way: it is done in any case."""
    return replace(state, prefill=Half.DONE, decode=Half.DONE, over=True), (Answered(),)


def _stopped(state: Try, failure: Failure) -> tuple[Try, tuple[TryEffect, ...]]:
    done = replace(state, prefill=Half.DONE, decode=Half.DONE, over=True)
    return done, (CancelHalf(Side.DECODE, failure), Answered())


# ---------------------------------------------------------------- policy


WORTH_OF_WARMTH = 2.0
"""So many requests more may be at a worker that has all of a prompt's beginning: beyond that, waiting costs more."""


class Candidate(msgspec.Struct, frozen=True):
    """A ready worker as pairing sees it. `prefills`: by name, whom this decode worker is connected to.

    `load` is in requests; `warmth` is how much of the prompt's beginning its prefix cache may have, 0 to 1.
    """

    name: str
    load: int
    prefills: tuple[str, ...] = ()
    warmth: float = 0.0

    @property
    def cost(self) -> float:
        return self.load - WORTH_OF_WARMTH * self.warmth


def choose(decodes: Sequence[Candidate], prefills: Sequence[Candidate], turn: int) -> tuple[str, str] | None:
    """(prefill, decode): the cheapest decode that has a partner, then its cheapest partner; None: no pair.

    The cheapest is the least loaded, where nobody is warm.

    Ties go round by `turn`, a counter of the router's, so the choice is a function of its arguments.
    """
    names = {each.name for each in prefills}
    decode = _cheapest([each for each in decodes if names.intersection(each.prefills)], turn)
    if decode is None:
        return None
    prefill = _cheapest([each for each in prefills if each.name in decode.prefills], turn)
    return None if prefill is None else (prefill.name, decode.name)


def _cheapest(candidates: Sequence[Candidate], turn: int) -> Candidate | None:
    least = min((each.cost for each in candidates), default=0)
    tied = sorted((each for each in candidates if each.cost == least), key=lambda each: each.name)
    return tied[turn % len(tied)] if tied else None
