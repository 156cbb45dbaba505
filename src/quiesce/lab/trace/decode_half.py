"""What the lines of one decode life did to its attempts, each step held against the model's actions at decode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from quiesce.lab.trace.breach import Blame
from quiesce.lab.trace.line import Line
from quiesce.lab.trace.text import HIDDEN, Lease, Message, Node, life_of, rank_of

There = tuple[int, str]
"""A decode rank, and the prefill rank that was told of its lease."""


@dataclass
class Lent:
    """One attempt: who was told, what each proved. `unseen` has proofs whose saying is in no file."""

    number: int
    request: str
    room: object
    digest: str
    leases: tuple[Lease, ...]
    grants: tuple[str, ...]
    is_held: bool = False
    is_committed: bool = False
    done: set[There] = field(default_factory=set)
    acked: set[There] = field(default_factory=set)
    fenced: set[There] = field(default_factory=set)
    unseen: set[There] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    landing: str = "direct"
    was_timeout: bool = False

    def told(self) -> list[There]:
        return [(rank, peer) for rank in range(len(self.leases)) for peer in self.grants]

    def is_proved(self, there: There) -> bool:
        return there in self.done or there in self.acked or there in self.fenced

    @property
    def is_over(self) -> bool:
        """Every lease was given back; what a clock gave back stays open until it is proved (rule 9)."""
        given_back = len(self.released) == len(self.leases)
        return given_back and (not self.was_timeout or all(map(self.is_proved, self.told())))


class DecodeHalf:
    """`take` each line in order. `is_whole`: the lines begin with the life; else earlier attempts are not known."""

    _kind = Lent
    _answer = "DONE"

    def __init__(self, life: str, blame: Blame) -> None:
        self.life = life
        self.lent: dict[int, Lent] = {}
        self.is_whole = True
        self._blame = blame
        self._first = self._last = 0

    def begin_anew(self) -> None:
        """Lines are missing here: of what was before, nothing is sure."""
        self.lent.clear()
        self.is_whole, self._first = False, 0

    def is_unknown(self, number: int) -> bool:
        """It may have been minted before the lines begin."""
        before = not self.is_whole and (self._first == 0 or number < self._first)
        return before and number not in self.lent

    def take(self, line: Line, is_seen: bool) -> None:
        """`is_seen`: the message that it hears, if any, is known to have been said."""
        self._learn(line, is_seen)
        for effect in line.effects:
            check = self._CHECKS.get(effect.name)
            if check is not None:
                check(self, line, effect)
        self._check_whole_step(line)

    # ------------------------------------------------------------ facts

    def _learn(self, line: Line, is_seen: bool) -> None:
        fact = line.fact
        if fact.name == "Received" and line.heard is not None:
            self._hear(line.heard, is_seen)
        elif fact.name == "FenceProved":
            only = fact.get("attempt")
            for lent in self.lent.values():
                if only in (None, lent.number):
                    lent.fenced |= {there for there in lent.told() if there[1] == fact["peer"]}

    def _hear(self, said: Message, is_seen: bool) -> None:
        """Rules 6 to 8: what counts names this life, an attempt, and a rank in a life that was granted it."""
        lent = self.lent.get(said.attempt)
        if lent is None or life_of(said.to) != self.life or said.sender not in lent.grants or lent.is_committed:
            return
        there = (rank_of(said.to), said.sender)
        if said.kind == "done":
            lent.done.add(there)
        elif said.kind == "abort_ack" and lent.is_held and not said.fields.get("outstanding"):
            lent.acked.add(there)
        if not is_seen:
            lent.unseen.add(there)

    # ------------------------------------------------------------ effects

    def _mint(self, line: Line, effect: Node) -> None:
        number, fact = effect["attempt"], line.fact
        if fact.name != "Reserve" or fact["request"] != effect["request"]:
            self._blame(line, "reserve", "granted_is_minted", f"attempt {number} is minted without its reservation")
            return
        if number <= self._last:
            self._blame(line, "reserve", "minted_in_order", f"attempt {number} after attempt {self._last}")
        lent = self._kind(
            *(number, fact["request"], fact["room"], fact.get("digest", HIDDEN)), fact["leases"], fact["grants"]
        )
        lent.landing = fact.get("landing", "direct")
        self._check_alias(line, lent)
        self.lent[number] = lent
        self._first, self._last = self._first or number, max(number, self._last)

    def _check_alias(self, line: Line, new: Lent) -> None:
        """Pages of segments count from 0 in each; staged ones are others' from commit on."""
        if new.landing == "segment":
            return
        for other in [lent for lent in self.lent.values() if lent.landing == "direct" or not lent.is_committed]:
            for rank, lease in enumerate(new.leases):
                live = rank < len(other.leases) and rank not in other.released
                both = lease.held and live and lease.held & (other.leases[rank].held or frozenset())
                if both:
                    pages = f"pages {sorted(both)} of rank {rank} are still attempt {other.number}'s"
                    self._blame(line, "reserve", "no_alias", pages)

    def _send(self, line: Line, effect: Node) -> None:
        said: Message = effect["envelope"]
        if said.open is not None:
            self._check_open(line, said)
        if self.is_unknown(said.attempt):
            return
        lent = self.lent.get(said.attempt)
        if lent is None:
            self._blame(line, said.kind, "granted_is_minted", f"{said.kind} of attempt {said.attempt}")
        else:
            self._check_said(line, lent, said)

    def _check_open(self, line: Line, said: Message) -> None:
        told = said.open
        closed = [each.number for each in self.lent.values() if told and told.is_closed(each.number)]
        live = [number for number in closed if not self.lent[number].is_over]
        if live:
            self._blame(line, "say_closed", "closed_is_over", f"{said.kind} says that attempts {live} are closed")
        if told and self._last and told.watermark > self._last + 1:
            why = f"the watermark is {told.watermark}, the last attempt {self._last}"
            self._blame(line, "say_closed", "closed_is_over", why)

    def _check_said(self, line: Line, lent: Lent, said: Message) -> None:
        about = f"{said.kind} of attempt {lent.number} to {said.to}"
        there = (rank_of(said.sender), said.to)
        if said.kind in ("publish", "abort") and said.to not in lent.grants:
            self._blame(line, said.kind, "grants_are_kept", f"{about}, which was never granted it")
        if said.kind == "publish" and (lent.is_held or lent.is_committed or lent.released):
            self._blame(line, "publish", "committed_is_live", f"{about}, which has ended")
        if said.kind == "abort" and not (lent.is_held or lent.is_over):
            self._blame(line, "abort", "abort_is_held", f"{about}, which is not held")
        if said.kind == "committed" and not (lent.is_committed or lent.is_over):
            self._blame(line, "commit", "committed_after_done", f"{about}, which is under way")
        if said.kind == "fenced" and not (there in lent.fenced or lent.is_over):
            self._blame(line, "fence", "fence_was_proved", f"{about}, of which no fence was proved")

    def _cache(self, line: Line, effect: Node) -> None:
        if not _is_verdict(line, effect["attempt"]):
            why = f"attempt {effect['attempt']} is cached by {line.fact.name}, not by a verification that held"
            self._blame(line, "cache", "only_committed_is_cached", why)

    def _commit(self, line: Line, effect: Node) -> None:
        number = effect["attempt"]
        if not _is_verdict(line, number):
            self._blame(line, "commit", "coverage", f"attempt {number} is committed by {line.fact.name}")
        lent = self.lent.get(number)
        if lent is None:
            if not self.is_unknown(number):
                self._blame(line, "commit", "granted_is_minted", f"attempt {number} was never minted")
            return
        missing = [f"rank {rank}'s from {peer}" for rank, peer in lent.told() if (rank, peer) not in lent.done]
        if missing:
            why = f"attempt {number} is committed without {self._answer} for {', '.join(missing)}"
            self._blame(line, "commit", "commit_awaits_every_grant", why)
        if lent.is_held or lent.is_committed or lent.released:
            self._blame(line, "commit", "committed_is_live", f"attempt {number} has ended")
        lent.is_committed = True

    def _hold(self, line: Line, effect: Node) -> None:
        lent = self.lent.get(effect["attempt"])
        if lent is not None:
            if lent.is_committed or lent.is_over:
                self._blame(line, "abort", "committed_is_live", f"attempt {lent.number} is committed or over")
            lent.is_held = True

    def _fail(self, line: Line, effect: Node) -> None:
        lent = self.lent.get(effect["attempt"])
        if lent is not None and not lent.is_held:
            self._blame(line, "abort", "every_failure_holds", f"attempt {lent.number} fails and is not held")

    def _release(self, line: Line, effect: Node) -> None:
        number, rank, proof = effect["attempt"], effect["decode_rank"], effect["proof"]
        lent = self.lent.get(number)
        if lent is None:
            if not self.is_unknown(number):
                self._blame(line, "release", "granted_is_minted", f"attempt {number} was never minted")
            return
        if rank in lent.released:
            self._blame(line, "release", "released_once", f"rank {rank}'s lease of attempt {number} once more")
        if lent.is_committed:
            self._check_finish(line, lent)
        else:
            self._check_proofs(line, lent, rank, proof)
        lent.released.add(rank)
        lent.was_timeout |= proof == "timeout"

    def _check_finish(self, line: Line, lent: Lent) -> None:
        if line.fact.name != "Finished" or line.fact["attempt"] != lent.number:
            self._blame(
                line, "finish", "no_clock_frees", f"attempt {lent.number} is attended; {line.fact.name} ends it"
            )

    def _check_proofs(self, line: Line, lent: Lent, rank: int, proof: str) -> None:
        about = f"attempt {lent.number} is released as {proof}"
        if not lent.is_held:
            self._blame(line, "release", "every_failure_holds", f"{about} and was not held")
        if proof == "timeout":
            self._blame(line, "release", "no_clock_frees", about)
            return
        mine = [there for there in lent.told() if there[0] == rank]
        counted = [there for there in mine if there in lent.done or there in lent.acked]
        missing = [peer for there in mine for peer in [there[1]] if not lent.is_proved(there)]
        if missing:
            self._blame(line, "release", "released_is_proved", f"{about} without a proof of {', '.join(missing)}")
        elif proof == "drained" and len(counted) < len(mine):
            self._blame(line, "release", "released_is_proved", f"{about} but a writer was only fenced")
        elif proof == "never_armed" and mine:
            self._blame(line, "release", "released_is_proved", f"{about} but it was published")

    def _quarantine(self, line: Line, effect: Node) -> None:
        lent = self.lent.get(effect["attempt"])
        if lent is not None and not lent.is_held:
            self._blame(line, "quarantine", "every_failure_holds", f"attempt {lent.number} was not held")

    # ------------------------------------------------------------ the whole step

    def _check_whole_step(self, line: Line) -> None:
        """Rule 3: who begins to hold tells everybody."""
        told = {(rank_of(said.sender), said.to) for said in line.said if said.kind == "abort"}
        for effect in line.effects:
            lent = self.lent.get(effect["attempt"]) if effect.name == "Hold" else None
            silent = [] if lent is None else [there[1] for there in lent.told() if there not in told]
            if lent is not None and silent:
                why = f"attempt {lent.number} is held and {', '.join(silent)} not told"
                self._blame(line, "abort", "unbound_ranks_are_asked", why)

    _CHECKS: ClassVar[dict[str, Callable[[Any, Line, Node], None]]] = {
        "Minted": _mint,
        "Send": _send,
        "Cache": _cache,
        "Attach": _commit,
        "Hold": _hold,
        "RequestFailed": _fail,
        "Release": _release,
        "Quarantine": _quarantine,
    }


def _is_verdict(line: Line, attempt: int) -> bool:
    """Rule 11: this step is a verification of this attempt that found nothing wrong."""
    fact = line.fact
    return fact.name == "Verified" and fact["attempt"] == attempt and fact.get("failure") is None
