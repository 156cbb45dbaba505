"""Which registered workers do not fit each other, kept up as they come and go."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from quiesce.protocol.hello import Greeting, Hello, known_mismatch

Pair = tuple[str, str]
"""Names of a decode worker and of a prefill worker."""

_OTHER = {"decode": "prefill", "prefill": "decode"}


class _Kind(msgspec.Struct, eq=False):
    """Workers of one role that say the same of themselves but for who they are, and the kinds that they do not fit."""

    blank: Greeting
    members: dict[str, Greeting]
    unfit: list[_Kind]


class Matching:
    """Workers by name, each with what it says in HELLO.

    Two fit or do not by what they say, not by who they are: kinds are compared, once, and not every worker with every
    other one. A thousand alike that come at once cost no more than two.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, dict[Greeting, _Kind]] = {role: {} for role in _OTHER}
        self._kind_of: dict[str, tuple[str, _Kind]] = {}

    def enter(self, worker: str, role: str, hello: Greeting | None) -> None:
        """It is here, instead of whoever had its name. One that says nothing of itself, or pairs with nobody, is not
        compared."""
        self.leave(worker)
        if hello is None or role not in _OTHER:
            return
        kind = self._kind(role, hello)
        kind.members[worker] = hello
        self._kind_of[worker] = role, kind

    def _kind(self, role: str, hello: Greeting) -> _Kind:
        blank, others = _blank(hello), self._kinds[_OTHER[role]]
        if (known := self._kinds[role].get(blank)) is not None:
            return known
        new = self._kinds[role][blank] = _Kind(blank, {}, [])
        new.unfit = [each for each in others.values() if _mismatch(role, blank, each.blank)]
        for each in new.unfit:
            each.unfit.append(new)
        return new

    def leave(self, worker: str) -> None:
        """It is gone, if it was here."""
        if (known := self._kind_of.pop(worker, None)) is None:
            return
        role, kind = known
        del kind.members[worker]
        if not kind.members:
            del self._kinds[role][kind.blank]
            for each in kind.unfit:
                each.unfit.remove(kind)

    def unfit_with(self, worker: str) -> set[str]:
        """Names of those of the other role that do not fit this one."""
        if (known := self._kind_of.get(worker)) is None:
            return set()
        return {name for kind in known[1].unfit for name in kind.members}

    def why(self, worker: str, other: str) -> str:
        """Why two do not fit, in words that decode and prefill hear alike."""
        role, kind = self._kind_of[worker]
        return _mismatch(role, kind.members[worker], self._kind_of[other][1].members[other])

    def pairs(self) -> Iterator[tuple[Pair, str]]:
        """Every pair that does not fit, and why: as many as D x P, so whoever asks takes as many as are needed."""
        for kind in self._kinds["decode"].values():
            for other in kind.unfit:
                for decode, mine in kind.members.items():
                    for prefill, theirs in other.members.items():
                        yield (decode, prefill), known_mismatch(mine, theirs)


def _blank(hello: Greeting) -> Greeting:
    """What it says but for who says it, and when."""
    if isinstance(hello, Hello):
        return msgspec.structs.replace(hello, worker="", incarnation="", nonce="", echo="")
    return msgspec.structs.replace(hello, worker="")


def _mismatch(role: str, mine: Greeting, theirs: Greeting) -> str:
    return known_mismatch(mine, theirs) if role == "decode" else known_mismatch(theirs, mine)
