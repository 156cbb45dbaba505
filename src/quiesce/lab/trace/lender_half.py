"""What the lines of one prefill life did to its windows, where decode reads, held against the model of pull."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from quiesce.lab.trace.line import Line
from quiesce.lab.trace.prefill_half import Kept, PrefillHalf
from quiesce.lab.trace.text import HIDDEN, Lease, Message, Node, life_of, split_key

ASKED = Lease(0, "0", frozenset())
"""ASK names no lease: that it was heard is all."""


@dataclass
class Loan(Kept):
    """`is_lent`: its window is open. `is_free`: there is a proof that decode reads no more."""

    is_lent: bool = False
    is_free: bool = False


class LenderHalf(PrefillHalf):
    """Source pages are free when every window that showed them was taken back, each by a proof."""

    _kind = Loan
    kept: dict[str, Loan]  # type: ignore[assignment]

    # ------------------------------------------------------------ facts

    def _learn(self, line: Line) -> None:
        super()._learn(line)
        fact = line.fact
        if fact.name == "Revoked" and fact["key"] in self.kept:
            self.kept[fact["key"]].is_free = True
        elif fact.name == "ReaderDead":
            self._bury(life_of(fact["peer"]))
            for loan in self.kept.values():
                loan.is_free |= split_key(loan.key)[0] == fact["peer"]

    def _obeyed(self, kept: Kept, said: Message) -> None:
        loan = self.kept[kept.key]
        if said.kind == "ask" and loan.lease is None:
            loan.lease, loan.room, loan.digest = ASKED, said.fields["room"], said.fields.get("digest", HIDDEN)
        elif said.kind in ("abort_ack", "committed", "fenced"):
            loan.is_free = True
            loan.is_done |= said.kind == "committed" and not loan.ended_by
            loan.end("tombstones")
        elif said.kind == "fail":
            loan.end("tombstones")

    # ------------------------------------------------------------ effects

    def _reply(self, line: Line, effect: Node) -> None:
        said: Message = effect["envelope"]
        loan = self.kept.get(said.key_at(said.to))
        if said.kind != "offer":
            super()._reply(line, effect)
        elif loan is not None and not loan.is_lent:
            self._blame(line, "offer", "lent_is_kept", f"OFFER of {loan.key}, whose window is not open")

    def _lend(self, line: Line, effect: Node) -> None:
        self._of(effect["key"])
        loan = self.kept[effect["key"]]
        why = self._why_over(loan)
        if why:
            self._blame(line, "offer", why, f"{loan.key} is lent to although it has ended")
        if loan.is_sure and not loan.is_bound:
            self._blame(line, "offer", "bound_was_granted", f"{loan.key} is lent to, and was never bound")
        loan.request, loan.is_lent = effect["request"], True

    def _take_back(self, line: Line, effect: Node) -> None:
        loan = self.kept.get(effect["key"])
        if loan is None:
            return
        if loan.is_sure and not loan.is_lent:
            self._blame(line, "take_back", "released_once", f"the window of {loan.key} once more")
        if not loan.is_free and not self.is_closed(loan.key):
            self._blame(line, "take_back", "taken_back_is_proved", f"the window of {loan.key}, which may be read")
        loan.is_lent = False

    def _release_source(self, line: Line, effect: Node) -> None:
        lent = [loan.key for loan in self.kept.values() if loan.request == effect["request"] and loan.is_lent]
        if lent:
            why = f"the source of {effect['request']} is released while it is lent to {', '.join(lent)}"
            self._blame(line, "reuse_source", "source_awaits_proof", why)
        super()._release_source(line, effect)

    def _cache_source(self, line: Line, effect: Node) -> None:
        request = effect["request"]
        undone = [loan.key for loan in self.kept.values() if loan.request == request and not loan.is_done]
        if undone:
            self._blame(line, "cache", "only_committed_is_cached", f"the source of {request}, which was not committed")

    _CHECKS: ClassVar[dict[str, Callable[[Any, Line, Node], None]]] = PrefillHalf._CHECKS | {
        "Reply": _reply,
        "Lend": _lend,
        "TakeBack": _take_back,
        "ReleaseSource": _release_source,
        "CacheSource": _cache_source,
    }
