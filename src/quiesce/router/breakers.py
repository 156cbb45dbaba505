"""Carries out `protocol.breaker` for every worker life and every pair of lives: names, clocks, logs and metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from quiesce.ids import Incarnation
from quiesce.protocol import breaker
from quiesce.protocol.breaker import Breaker, BreakerFact, Cause, Moved, Phase, WantProbe, blamed
from quiesce.protocol.messages import Failure
from quiesce.protocol.pairing import Side
from quiesce.router.failures import DEADLINE
from quiesce.router.link import WorkerLink
from quiesce.telemetry.logs import ids

Lives = tuple[Incarnation, ...]
"""Of a pair, prefill first, or of one worker alone."""

_LONGEST_PAUSE_S = 30.0

_log = logging.getLogger(__name__)


class Breakers:
    """Asked before each try whether its pair may be used, told afterwards what came of it.

    `enough` failures in a row are too many. `moved` hears a breaker's name and its new phase, `changed` that some
    pair may be used, or may not any more, or should be probed.
    """

    def __init__(
        self,
        enough: int = 3,
        moved: Callable[[str, Phase], None] = lambda name, phase: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._enough, self._moved, self._clock = enough, moved, clock
        self._states: dict[Lives, Breaker] = {}
        self._due_s: dict[Lives, float] = {}
        self._lives: dict[str, Incarnation] = {}

    def learn(self, links: Iterable[WorkerLink]) -> None:
        """Who is here. A new life begins with a closed breaker: it is somebody else."""
        for link in links:
            if link.welcome is not None:
                before = self._lives.get(link.name)
                if before not in (None, link.welcome.incarnation):
                    self._forget(before)  # while it still has its name
                self._lives[link.name] = link.welcome.incarnation

    def admits(self, lives: Lives) -> bool:
        """Whether clients may be sent to this pair: no breaker of either half or between them is open."""
        return all(breaker.admits(self._state(key)) for key in _keys(lives))

    def doubts(self, lives: Lives) -> bool:
        """Whether a pair should be used only where no other can serve."""
        return any(self._state(key).phase is Phase.SUSPECTED for key in _keys(lives))

    def failed(self, lives: Lives, failure: Failure, cause: Cause) -> None:
        """A client's request failed on this pair at its first try."""
        if sides := blamed(failure):
            self._feed(_key(lives, sides), breaker.Failed(cause), failure.code)

    def served(self, lives: Lives) -> None:
        for key in _keys(lives):
            self._feed(key, breaker.Served())

    # ------------------------------------------------------------ probes

    def probe_due_s(self, lives: Lives) -> float | None:
        """When this pair should be probed, on `clock`; None: no breaker asks for it."""
        return min((self._due_s[key] for key in _keys(lives) if key in self._due_s), default=None)

    def probe_began(self, lives: Lives) -> None:
        for key in _keys(lives):
            self._feed(key, breaker.ProbeBegan())

    def probe_passed(self, lives: Lives) -> None:
        for key in _keys(lives):
            self._feed(key, breaker.ProbePassed())

    def probe_failed(self, lives: Lives, failure: Failure | None = None) -> None:
        """The one that is to blame has failed it, for the others it was none. Having no answer in time is shared."""
        sides = _to_blame(failure)
        for key in _keys(lives):
            failed = bool(sides) and key == _key(lives, sides)
            self._feed(key, breaker.ProbeFailed() if failed else breaker.ProbeEnded(), failure.code if failure else "")

    def names_in(self, *phases: Phase) -> list[str]:
        """The breakers that are in one of these phases."""
        return sorted(self._name(key) for key, state in self._states.items() if state.phase in phases)

    # ------------------------------------------------------------ machines

    def _feed(self, key: Lives, fact: BreakerFact, code: str = "") -> None:
        if not set(key) <= set(self._lives.values()):
            return  # news of a life that is over
        state, effects = breaker.step(self._state(key), fact, self._enough)
        if state == Breaker():
            self._states.pop(key, None)
            self._due_s.pop(key, None)
        else:
            self._states[key] = state
        for effect in effects:
            match effect:
                case Moved(phase):
                    self._tell(key, phase, code)
                case WantProbe(turn):
                    self._due_s[key] = self._clock() + _pause_s(turn)
        if effects:
            self.changed()

    def _tell(self, key: Lives, phase: Phase, code: str = "") -> None:
        level = logging.INFO if phase in (Phase.CLOSED, Phase.HALF_OPEN) else logging.WARNING
        fields = ids(worker_name=self._name(key), state=phase.value, code=code or None)
        _log.log(level, "a circuit breaker moved", extra=fields)
        self._moved(self._name(key), phase)

    def _forget(self, life: Incarnation | None) -> None:
        for key in [key for key in self._states if life in key]:
            state = self._states.pop(key)
            self._due_s.pop(key, None)
            if state.phase is not Phase.CLOSED:
                self._tell(key, Phase.CLOSED)

    def _state(self, key: Lives) -> Breaker:
        return self._states.get(key) or Breaker()

    def _name(self, key: Lives) -> str:
        names = {life: name for name, life in self._lives.items()}
        return "+".join(names.get(life, life[:8]) for life in key)


def _keys(lives: Lives) -> list[Lives]:
    """Each half's own breaker, and that of what is between them."""
    halves = [(life,) for life in lives]
    return [*halves, lives] if len(lives) > 1 else [lives]


def _key(lives: Lives, sides: tuple[Side, ...]) -> Lives:
    if len(lives) == 1 or len(sides) > 1:
        return lives
    return lives[:1] if sides == (Side.PREFILL,) else lives[1:]


def _to_blame(failure: Failure | None) -> tuple[Side, ...]:
    if failure is None:
        return ()
    return tuple(Side) if failure == DEADLINE else blamed(failure)


def _pause_s(turn: int) -> float:
    return 0.0 if turn == 0 else min(_LONGEST_PAUSE_S, 2.0 ** (turn - 1))
