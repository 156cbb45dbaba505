"""One supervised process over all its lives: who it is, how long to wait between them."""

from __future__ import annotations

import asyncio
import signal

import msgspec

from quiesce.cli.life import Life
from quiesce.errors import ConfigurationError, MachineLacksError

HOPELESS = frozenset({ConfigurationError.exit_code, MachineLacksError.exit_code})
"""Exit codes that say "not on this machine, not with these settings": starting again cannot help."""


class ChildSpec(msgspec.Struct, frozen=True):
    """`name` is unique within a supervisor; `argv` starts the process; `role` names the quiesce command it runs.

    `words` are that command and its options: what a spare is told that becomes this process.
    """

    name: str
    role: str
    argv: tuple[str, ...]
    words: tuple[str, ...] = ()


class BackOff(msgspec.Struct):
    """How long to wait before a crashed child is started again: not at all, then more and more, until a long life."""

    first_s: float = 0.5
    most_s: float = 30.0
    forgiven_after_s: float = 60.0
    _next_s: float = 0.0

    def after(self, lived_s: float) -> float:
        """The pause after a life of `lived_s` seconds."""
        if lived_s >= self.forgiven_after_s:
            self._next_s = 0.0
        pause_s = self._next_s
        self._next_s = min(self.most_s, pause_s * 2) or self.first_s
        return pause_s


class Child:
    """A process that lives again and again. `ready_once` and `lives` are for whoever watches it.

    `takes_spares`: its next life may be a spare's. `stopping`: it has been told to stop, and lives no more after that.
    """

    def __init__(self, spec: ChildSpec, back_off: BackOff) -> None:
        self.spec = spec
        self.back_off = back_off
        self.lives = 0
        self.ready_once = False
        self.takes_spares = True
        self.stopping = asyncio.Event()
        self._life: Life | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int | None:
        """Of the living process, else None."""
        return self._life.pid if self._life else None

    async def live(self, life: Life) -> int:
        """This life is the child's from now on; wait for its end and return its exit code."""
        self.lives += 1
        self._life = life
        return await life.ended()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process lives."""
        if self._life is not None:
            self._life.signal(number)
