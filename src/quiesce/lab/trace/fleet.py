"""Both halves of every hand-off together: what no worker's lines show alone."""

from __future__ import annotations

from collections.abc import Container

from quiesce.lab.trace.breach import Blame
from quiesce.lab.trace.decode_half import DecodeHalf, Lent
from quiesce.lab.trace.lender_half import LenderHalf
from quiesce.lab.trace.line import Line
from quiesce.lab.trace.prefill_half import Kept, PrefillHalf
from quiesce.lab.trace.puller_half import PullerHalf
from quiesce.lab.trace.text import Node, life_of, rank_of, split_key


class Fleet:
    """One state of all workers whose lines are given. Lines are taken in an order that messages allow.

    `pulls` are the lives whose lines are about decode reading what prefill lends.

    Whichever such order it is: in a run of the model nothing is under way to a lease that was given back.
    """

    def __init__(self, blame: Blame, pulls: Container[str] = ()) -> None:
        self._blame = blame
        self._pulls = pulls
        self.decodes: dict[str, DecodeHalf] = {}
        self.prefills: dict[str, PrefillHalf] = {}

    def half_of(self, line: Line) -> DecodeHalf | PrefillHalf:
        pulls = line.life in self._pulls
        if line.role == "decode":
            if line.life not in self.decodes:
                self.decodes[line.life] = (PullerHalf if pulls else DecodeHalf)(line.life, self._blame)
            return self.decodes[line.life]
        if line.life not in self.prefills:
            self.prefills[line.life] = (LenderHalf if pulls else PrefillHalf)(line.life, self._blame)
        return self.prefills[line.life]

    def take(self, line: Line, is_seen: bool) -> None:
        self.half_of(line).take(line, is_seen)
        for effect in line.effects:
            if effect.name == "Release":
                self._check_quiet(line, effect["attempt"], effect["decode_rank"], "release", "no_wild_write")
            elif effect.name == "Attach":
                for rank in self._ranks(line, effect["attempt"]):
                    self._check_quiet(line, effect["attempt"], rank, "commit", "no_wild_write_under_readers")
            elif effect.name == "Launch":
                self._check_target(line, effect)

    def _ranks(self, line: Line, attempt: int) -> range:
        lent = self.decodes[line.life].lent.get(attempt)
        return range(0 if lent is None else len(lent.leases))

    def _check_quiet(self, line: Line, attempt: int, rank: int, action: str, rule: str) -> None:
        """At release and at commit: whoever may still write was fenced."""
        lent = self.decodes[line.life].lent.get(attempt)
        for life, half in self.prefills.items():
            kept = half.kept.get(f"{rank}@{line.life}#{attempt}")
            if kept is None or not _may_write(kept) or (lent is not None and _is_out(lent, rank, life)):
                continue
            what = f"writes {sorted(kept.outstanding)}" if kept.outstanding else "a write of unknown fate"
            self._blame(line, action, rule, f"prefill@{life} has {what} under way to {kept.key}")

    def _check_target(self, line: Line, effect: Node) -> None:
        """At launch: the lease is still the attempt's, and nobody reads it."""
        decode, number = split_key(effect["key"])
        half = self.decodes.get(life_of(decode))
        lent = None if half is None else half.lent.get(number)
        if lent is None or _is_out(lent, rank_of(decode), line.life):
            return
        about = f"write {effect['write']} goes to {effect['key']}"
        if line.life not in map(life_of, lent.grants):
            self._blame(line, "dequeue", "bound_was_granted", f"{about}, which this life was never granted")
        elif lent.is_committed:
            self._blame(line, "launch", "no_wild_write_under_readers", f"{about}, which is attended")
        elif rank_of(decode) in lent.released:
            self._blame(line, "launch", "no_wild_write", f"{about}, which was given back")


def _may_write(kept: Kept) -> bool:
    return bool(kept.outstanding) or kept.is_poisoned


def _is_out(lent: Lent, rank: int, life: str) -> bool:
    """Its writes are fenced, or what it proved is in no file: nothing follows from what its lines show."""
    return any(each[0] == rank and life_of(each[1]) == life for each in lent.fenced | lent.unseen)
