"""A worker that does nothing by itself: what reaches it waits at a gate, and a story decides what goes in and when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from quiesce.errors import UsageError
from quiesce.lab.mutants.registry import BY_NAME
from quiesce.lab.patches import patched

# ---------------------------------------------------------------- story -> worker


class Arm(msgspec.Struct, frozen=True, tag="arm"):
    """From now on everything waits. `mutant` names what the worker leaves out meanwhile."""

    mutant: str = ""


class Disarm(msgspec.Struct, frozen=True, tag="disarm"):
    """Nothing is left out, all that waits goes in, and nothing waits any more."""


class Let(msgspec.Struct, frozen=True, tag="let"):
    """Let one thing in. It `stays` when a copy of it goes on waiting."""

    serial: int
    stays: bool = False


class Lose(msgspec.Struct, frozen=True, tag="lose"):
    """Let one thing never come."""

    serial: int


class Land(msgspec.Struct, frozen=True, tag="land"):
    """Let a write land; when it is `torn` its bytes do and its tags do not."""

    serial: int
    torn: bool = False


class FailInFlight(msgspec.Struct, frozen=True, tag="fail_in_flight"):
    """Tell the machine that a write that waits has failed. It may land all the same."""

    serial: int


class Fire(msgspec.Struct, frozen=True, tag="fire"):
    """A clock of an attempt at decode runs out."""

    attempt: int
    timer: str


class Forge(msgspec.Struct, frozen=True, tag="forge"):
    """An ABORT_ACK arrives that nobody sent, and waits."""

    attempt: int


GateOrder = Arm | Disarm | Let | Lose | Land | FailInFlight | Fire | Forge

# ---------------------------------------------------------------- worker -> story


class Waits(msgspec.Struct, frozen=True, tag="waits"):
    """Something waits at the gate. `what` is submit, cancel, message, compute, clock, notice or write.

    `kind` says which message or clock; `request` and `attempt` what it is about, when the worker knows.
    """

    serial: int
    what: str
    kind: str = ""
    request: str = ""
    attempt: int = 0


class Landed(msgspec.Struct, frozen=True, tag="landed"):
    """A write that had waited is over, and the machine has heard of it."""

    serial: int


class Obeyed(msgspec.Struct, frozen=True, tag="obeyed"):
    """The order was carried out; or it was not, for `reason`."""

    reason: str = ""


GateEvent = Waits | Landed | Obeyed


class Gate:
    """What waits in one worker. Lives on its event loop, but for `wait`, which a transfer thread calls."""

    def __init__(self, tell: Callable[[GateEvent], None]) -> None:
        self.tell = tell
        self.armed = False
        self._serial = 0
        self._waiting: dict[int, Callable[[], None]] = {}
        self._writes: dict[int, WriteGate] = {}
        self._left_out = ExitStack()

    def hold(self, go: Callable[[], None], what: str, *, kind: str = "", request: str = "", attempt: int = 0) -> int:
        """`go` waits until it is let in; at once when the gate is open."""
        if not self.armed:
            go()
            return 0
        self._serial += 1
        self._waiting[self._serial] = go
        self.tell(Waits(self._serial, what, kind, request, attempt))
        return self._serial

    def hold_write(self, write: WriteGate, request: str) -> int:
        serial = self.hold(write.open, "write", request=request)
        if serial:
            self._writes[serial] = write
        return serial

    def arm(self, mutant: str) -> None:
        self._left_out.close()
        if mutant:
            self._left_out.enter_context(patched(*BY_NAME[mutant].patches))
        self.armed = True

    def disarm(self) -> None:
        """Raises what the first thing to go wrong raised, when everything has gone in."""
        self.armed = False
        self._left_out.close()
        self._writes.clear()
        wrong = [error for serial in sorted(self._waiting) if (error := _tried(self._waiting.pop(serial)))]
        if wrong:
            raise wrong[0]

    def let(self, serial: int, *, stays: bool = False) -> None:
        """Raises UsageError for what does not wait."""
        go = self._take(serial)
        if stays:
            self._waiting[serial] = go
        go()

    def lose(self, serial: int) -> None:
        self._take(serial)

    def land(self, serial: int, *, torn: bool) -> None:
        if serial in self._writes:
            self._writes.pop(serial).torn = torn
        self.let(serial)

    def _take(self, serial: int) -> Callable[[], None]:
        if serial not in self._waiting:
            raise UsageError(f"Nothing waits as number {serial}.")
        return self._waiting.pop(serial)


def _tried(go: Callable[[], None]) -> Exception | None:
    try:
        go()
    except Exception as error:
        return error
    return None


class WriteGate:
    """One write, in its transfer thread, between its source and its target."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self.torn = False

    def open(self) -> None:
        self._opened.set()

    def wait(self) -> None:
        self._opened.wait()
