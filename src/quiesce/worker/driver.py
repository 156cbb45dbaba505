"""The one place where a machine advances: an input in, a step, its effects carried out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - the letter of the type, never a variable
E = TypeVar("E")


class Driver(Generic[S, I, E]):
    """Feeds inputs to a pure machine. An effect may feed further inputs; they wait until its step is carried out.

    `record` sees each step before its effects are carried out.

    Lives on the event loop's thread only.
    """

    def __init__(
        self,
        state: S,
        step: Callable[[S, I], tuple[S, Iterable[E]]],
        carry_out: Callable[[E], None],
        record: Callable[[I, Iterable[E]], None] = lambda event, effects: None,
    ) -> None:
        self.state = state
        self._step = step
        self._carry_out = carry_out
        self._record = record
        self._inputs: deque[I] = deque()
        self._stepping = False

    def feed(self, event: I) -> None:
        """Advance by `event` and by everything that follows from it, before returning (unless already stepping)."""
        self._inputs.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inputs:
                self._advance(self._inputs.popleft())
        finally:
            self._stepping = False

    def _advance(self, event: I) -> None:
        self.state, effects = self._step(self.state, event)
        self._record(event, effects)
        for effect in effects:
            self._carry_out(effect)
