"""Lines of several lives, taken in an order that their messages allow: a receive needs its send somewhere.

Workers have no common clock, rings begin in the middle and end at different moments. So a message that nobody said is
a breach only where its sender's lines would show it; what is not known is counted, not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from quiesce.lab.trace.actions import HEARD, actions_of
from quiesce.lab.trace.breach import Breach
from quiesce.lab.trace.fleet import Fleet
from quiesce.lab.trace.journal import Journal, journals
from quiesce.lab.trace.line import Line
from quiesce.lab.trace.text import Message, life_of

NO_FILE = "said by a life without a file"
BEFORE = "said before a file begins"
AFTER = "said after a file ends"
MATCHED = "found where it was said"


@dataclass
class Verdict:
    """What was found. `messages` counts what was heard by how it was matched; `actions` the steps by action."""

    breaches: list[Breach] = field(default_factory=list)
    journals: list[Journal] = field(default_factory=list)
    actions: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)

    def blame(self, line: Line, action: str, rule: str, why: str) -> None:
        self.breaches.append(Breach(line, action, rule, why))

    @property
    def rules(self) -> set[str]:
        return {breach.rule for breach in self.breaches}


def judge(lines: Iterable[Line], *, idle: bool = False) -> Verdict:
    """Replay. `idle`: nothing was under way when the files were written, so whatever was heard is in its sender's."""
    verdict = Verdict()
    verdict.journals = journals(lines, verdict.blame)
    _Replay(verdict, idle).run()
    return verdict


class _Replay:
    def __init__(self, verdict: Verdict, idle: bool) -> None:
        self._verdict = verdict
        self._idle = idle
        self._by_life = {journal.life: journal for journal in verdict.journals}
        self._fleet = Fleet(verdict.blame, {journal.life for journal in verdict.journals if journal.is_pull})
        self._next = dict.fromkeys(self._by_life, 0)
        self._said: set[str] = set()
        self._last_heard: dict[tuple[str, str], int] = {}

    def run(self) -> None:
        while any(self._next[life] < len(journal.lines) for life, journal in self._by_life.items()):
            if not sum(self._advance(journal) for journal in self._by_life.values()):
                self._force()

    def _advance(self, journal: Journal) -> int:
        """Take lines until one hears what is said only later; how many were taken."""
        begin = self._next[journal.life]
        while (at := self._next[journal.life]) < len(journal.lines):
            heard = journal.lines[at].heard
            if heard is not None and self._is_waiting(heard):
                break
            self._take(journal, at, self._trust(journal, at, heard))
        return self._next[journal.life] - begin

    def _is_waiting(self, heard: Message) -> bool:
        sender = self._by_life.get(life_of(heard.sender))
        return sender is not None and heard.text not in self._said and heard.text in sender.said

    def _force(self) -> None:
        """Everybody waits for what is said later: no order of these lines is possible."""
        for life, at in self._next.items():
            journal = self._by_life[life]
            if at < len(journal.lines):
                self._blame_unsaid(journal.lines[at], "is said only after what follows from it")
                self._take(journal, at, is_seen=False)
                return

    def _take(self, journal: Journal, at: int, is_seen: bool) -> None:
        line = journal.lines[at]
        half = self._fleet.half_of(line)
        if journal.is_missing_before(at):
            half.begin_anew()
        self._verdict.actions.update(actions_of(line, is_pull=journal.is_pull))
        self._fleet.take(line, is_seen)
        self._said.update(said.text for said in line.said)
        self._next[journal.life] = at + 1

    # ------------------------------------------------------------ what was heard and never said

    def _trust(self, journal: Journal, at: int, heard: Message | None) -> bool:
        """Whether the message is known to have been said (or there is none)."""
        if heard is None:
            return True
        how = self._how(journal, at, heard)
        if how:
            self._verdict.messages[how] += 1
        else:
            self._blame_unsaid(journal.lines[at], "is said nowhere")
        return how == MATCHED

    def _how(self, journal: Journal, at: int, heard: Message) -> str:
        sender = self._by_life.get(life_of(heard.sender))
        if sender is None:
            return NO_FILE
        if heard.text in self._said:
            return MATCHED
        if not sender.knows(heard):
            return BEFORE
        return AFTER if not self._idle and at > self._last_of(journal, sender) else ""

    def _last_of(self, journal: Journal, sender: Journal) -> int:
        pair = (journal.life, sender.life)
        if pair not in self._last_heard:
            self._last_heard[pair] = journal.last_heard_of(sender)
        return self._last_heard[pair]

    def _blame_unsaid(self, line: Line, why: str) -> None:
        heard = line.heard
        if heard is not None:
            action = HEARD.get(heard.kind, "stop")
            about = f"{heard.kind} of attempt {heard.attempt} by {heard.sender}"
            self._verdict.blame(line, action, "said_before_heard", f"{about} {why}")
