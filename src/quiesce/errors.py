"""Every exception of Quiesce, drawn once.

::

    QuiesceError
    |-- UsageError            the caller's fault       nothing was changed       exit 2, HTTP 4xx
    |   `-- RequestRejected   one request's fault      no page, room, slot was made
    |-- ConfigurationError    the operator's fault     nothing was started       exit 2
    |-- MachineLacksError     this machine's fault     nothing was started       exit 3
    |-- PeerUnusable          a peer's fault           see `took_effect`         exit 4
    |   |-- HandshakeRefused  the peer does not fit    nothing was exchanged
    |   `-- BadFrame          the peer sent nonsense   the frame had no effect
    |-- OutOfPages            nobody's fault           nothing was allocated
    `-- InvariantBroken       our bug                  unknown                   exit 70

An error says what happened, whose fault it is, whether it *definitely* did not take effect, and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class QuiesceError(Exception):
    """Root of the tree. `remedy` is one sentence that says what to do; `exit_code` is the command line's."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class UsageError(QuiesceError):
    """The caller asked for something that cannot be; nothing was changed."""

    exit_code = 2


class RequestRejected(UsageError):
    """One request cannot be served as asked. Raised before a room, page, slot or connection exists (rule 10)."""

    def __init__(self, message: str, *, code: str, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.param = param


class ConfigurationError(QuiesceError):
    """Settings that cannot work. `problems` lists all of them at once; nothing was started."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class MachineLacksError(QuiesceError):
    """This machine lacks something that was asked for (memory, a system call, a library)."""

    exit_code = 3


class PeerUnusable(QuiesceError):
    """A peer or endpoint cannot be used. `took_effect` is False when the action definitely did not happen."""

    exit_code = 4

    def __init__(self, message: str, *, remedy: str = "", took_effect: bool | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.took_effect = took_effect


class HandshakeRefused(PeerUnusable):
    """HELLO showed that two workers do not fit together; no message was exchanged beyond it."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy, took_effect=False)


class BadFrame(PeerUnusable):
    """A frame was too large, malformed or out of bounds. It had no effect; the connection ends."""

    def __init__(self, message: str) -> None:
        super().__init__(message, took_effect=False)


class OutOfPages(QuiesceError):
    """The pool has fewer free pages than asked for; nothing was allocated."""


class InvariantBroken(QuiesceError):
    """A named invariant of the protocol does not hold: our bug."""

    exit_code = 70


def install(extra: str) -> str:
    """What brings an extra's libraries, in the checkout: on no index, where our name would be a stranger's."""
    return f"pip install -e '.[{extra}]'"


def in_checkout(extra: str) -> str:
    """The remedy for libraries that an extra brings."""
    return f"Run, in the source's directory: {install(extra)}"


def invariant(holds: bool, name: str, detail: str = "") -> None:
    """Raise `InvariantBroken` unless `holds`. Used instead of `assert`, which `python -O` would remove."""
    if not holds:
        raise InvariantBroken(f"invariant {name} is broken: {detail}" if detail else f"invariant {name} is broken")
