"""What the lines of one decode life did to its attempts where decode reads, held against the model of pull."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from quiesce.lab.trace.decode_half import DecodeHalf, Lent, There
from quiesce.lab.trace.line import Line
from quiesce.lab.trace.text import Message, Node, life_of, rank_of


@dataclass
class Read(Lent):
    """`done` has who offered. `reads` are under way, each for a decode rank; `poisoned` and `shut` are decode ranks."""

    reads: dict[int, int] = field(default_factory=dict)
    poisoned: set[int] = field(default_factory=set)
    shut: set[int] = field(default_factory=set)

    def is_quiet(self, rank: int) -> bool:
        return rank in self.shut or (rank not in self.reads.values() and rank not in self.poisoned)

    @property
    def is_over(self) -> bool:
        given_back = len(self.released) == len(self.leases)
        return given_back and all(map(self.is_quiet, range(len(self.leases))))


class PullerHalf(DecodeHalf):
    """Pages are decode's to prove: every read is terminal, or its own endpoint was closed."""

    _kind = Read
    _answer = "OFFER"
    lent: dict[int, Read]  # type: ignore[assignment]

    def begin_anew(self) -> None:
        super().begin_anew()
        self._last_read = 0

    _last_read = 0

    # ------------------------------------------------------------ facts

    def _learn(self, line: Line, is_seen: bool) -> None:
        fact = line.fact
        if fact.name == "Received" and line.heard is not None:
            self._hear(line.heard, is_seen)
        elif fact.name == "ReadSettled":
            self._settle(fact)
        elif fact.name == "EndpointClosed":
            for lent in self.lent.values():
                lent.shut |= {rank for rank in range(len(lent.leases)) if not lent.is_quiet(rank)}

    def _hear(self, said: Message, is_seen: bool) -> None:
        lent = self.lent.get(said.attempt)
        if lent is None or life_of(said.to) != self.life or said.sender not in lent.grants:
            return
        if said.kind == "offer" and not lent.is_held and not lent.is_committed:
            lent.done.add((rank_of(said.to), said.sender))

    def _settle(self, fact: Node) -> None:
        lent = self.lent.get(fact["attempt"])
        rank = None if lent is None else lent.reads.pop(fact["read"], None)
        if lent is not None and rank is not None and fact["outcome"] == "failed_in_flight":
            lent.poisoned.add(rank)

    # ------------------------------------------------------------ effects

    def _launch(self, line: Line, effect: Node) -> None:
        number, read, rank = effect["attempt"], effect["read"], effect.get("decode_rank", 0)
        if read <= self._last_read:
            self._blame(line, "launch", "read_in_order", f"read {read} after read {self._last_read}")
        self._last_read = max(read, self._last_read)
        lent = self.lent.get(number)
        if lent is None:
            return
        about = f"read {read} of attempt {number}"
        if lent.is_held or lent.is_committed or lent.released:
            self._blame(line, "launch", "stopped_launches_nothing", f"{about}, which has ended")
        if (rank, effect["peer"]) not in lent.done:
            self._blame(line, "launch", "read_in_order", f"{about}, which {effect['peer']} did not offer")
        lent.reads[read] = rank

    def _check_said(self, line: Line, lent: Lent, said: Message) -> None:
        about, rank = f"{said.kind} of attempt {lent.number} to {said.to}", rank_of(said.sender)
        there: There = (rank, said.to)
        if said.kind == "ask" and said.to not in lent.grants:
            self._blame(line, "reserve", "grants_are_kept", f"{about}, which was never granted it")
        if said.kind == "ask" and (lent.is_held or lent.is_committed or lent.released):
            self._blame(line, "reserve", "committed_is_live", f"{about}, which has ended")
        if said.kind == "committed" and not (lent.is_committed or lent.is_over):
            self._blame(line, "commit", "commit_awaits_reads", f"{about}, which is under way")
        if said.kind == "abort_ack":
            self._check_ack(line, lent, about, there)
        if said.kind == "fenced" and not (rank in self._as_read(lent).shut or lent.is_over):
            self._blame(line, "close_endpoint", "fence_was_proved", f"{about}: the endpoint was not closed")

    def _check_ack(self, line: Line, lent: Lent, about: str, there: There) -> None:
        read, rank = self._as_read(lent), there[0]
        if not (lent.is_held or lent.is_over):
            self._blame(line, "send_ack", "every_failure_holds", f"{about}, which is not held")
        if rank in read.poisoned and rank not in read.shut:
            self._blame(line, "send_ack", "unknown_fate_poisons", f"{about}: a read has an unknown fate")
        if rank in read.reads.values() and rank not in read.shut:
            under_way = sorted(number for number, of in read.reads.items() if of == rank)
            self._blame(line, "send_ack", "ack_awaits_outstanding", f"{about} while reads {under_way} are outstanding")

    def _commit(self, line: Line, effect: Node) -> None:
        lent = self.lent.get(effect["attempt"])
        if lent is not None and not all(map(lent.is_quiet, range(len(lent.leases)))):
            why = f"attempt {lent.number} is committed while reads {sorted(lent.reads)} are outstanding"
            self._blame(line, "commit", "commit_awaits_reads", why)
        super()._commit(line, effect)

    def _check_proofs(self, line: Line, lent: Lent, rank: int, proof: str) -> None:
        read, about = self._as_read(lent), f"attempt {lent.number} is released as {proof}"
        if not lent.is_held:
            self._blame(line, "release", "every_failure_holds", f"{about} and was not held")
        if proof == "timeout":
            self._blame(line, "release", "no_clock_frees", about)
        elif not read.is_quiet(rank):
            self._blame(line, "release", "released_is_proved", f"{about} while a read may land in it")
        elif (proof == "fenced") != (rank in read.shut):
            self._blame(line, "release", "released_is_proved", f"{about}, which is not why nothing lands in it")
        elif proof == "never_armed" and any(there[0] == rank for there in read.done):
            self._blame(line, "release", "released_is_proved", f"{about} but it was read into")

    def _check_whole_step(self, line: Line) -> None:
        """Nobody must be told of a hold: what is awaited is decode's own."""

    def _as_read(self, lent: Lent) -> Read:
        return self.lent[lent.number]

    _CHECKS: ClassVar[dict[str, Callable[[Any, Line, Node], None]]] = DecodeHalf._CHECKS | {
        "LaunchRead": _launch,
        "Attach": _commit,
    }
