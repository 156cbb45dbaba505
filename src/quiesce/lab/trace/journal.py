"""All lines of one life, from however many files, in the order of its steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from quiesce.lab.trace.breach import Blame
from quiesce.lab.trace.line import Line
from quiesce.lab.trace.prefill_half import begins
from quiesce.lab.trace.text import Message, life_of


class Journal:
    """`said` counts every message in it. Whether a message that is not there was never said, `knows` says."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.life, self.role = lines[0].life, lines[0].role
        self.said = Counter(said.text for line in lines for said in line.said)
        self.is_pull = any(map(_is_of_pull, lines))
        self.is_whole = all(not self.is_missing_before(at) for at in range(len(lines)))
        self._begun: set[str] = set()
        for at, line in enumerate(lines):
            if self.is_missing_before(at):
                self._begun.clear()
            self._begun |= _begun(line)

    def is_missing_before(self, at: int) -> bool:
        """Steps before this line are not here (or what they did is not): of what was before, nothing is sure."""
        if at == 0:
            return self.lines[0].serial != 1
        return self.lines[at - 1].is_cut or self.lines[at].serial != self.lines[at - 1].serial + 1

    def knows(self, message: Message) -> bool:
        """All that this life ever said of the attempt, up to its last line, is here."""
        if self.is_whole:
            return True
        return message.key_at(message.to if self.role == "prefill" else "") in self._begun

    def last_heard_of(self, other: Journal) -> int:
        """The last line that hears what is in the other journal; -1 if none does. Streams keep their order."""
        heard: Counter[str] = Counter()
        last = -1
        for at, line in enumerate(self.lines):
            message = line.heard
            if message is not None and life_of(message.sender) == other.life:
                heard[message.text] += 1
                if heard[message.text] <= other.said[message.text]:
                    last = at
        return last


def _is_of_pull(line: Line) -> bool:
    """Decode reads here, and prefill lends."""
    kinds = {said.kind for said in line.said} | ({line.heard.kind} if line.heard is not None else set())
    return bool(kinds & {"ask", "offer"})


def _begun(line: Line) -> set[str]:
    """The attempts that this step is the first of."""
    if line.role == "decode":
        return {f"#{effect['attempt']}" for effect in line.effects if effect.name == "Minted"}
    heard = line.heard
    key = "" if heard is None else heard.key_at(heard.sender)
    return {key} if key and begins(line, key) else set()


def journals(lines: Iterable[Line], blame: Blame) -> list[Journal]:
    """Lines by life. A file has the steps of a life all, each once, in order; what two files have counts once."""
    by_life: defaultdict[tuple[str, str], dict[int, Line]] = defaultdict(dict)
    before: dict[tuple[str, str, str], int] = {}
    for line in lines:
        place = (line.file, line.role, line.life)
        if place in before and line.serial != before[place] + 1:
            blame(line, "a file", "in_order", f"step {line.serial} follows step {before[place]}")
        before[place] = line.serial
        known = by_life[line.role, line.life].setdefault(line.serial, line)
        if known.text != line.text and not (known.is_cut or line.is_cut):
            blame(line, "a file", "in_order", f"step {line.serial} is another one in {known.where}")
    return [Journal([steps[serial] for serial in sorted(steps)]) for _, steps in sorted(by_life.items())]
