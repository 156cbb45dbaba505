"""A line of a trace: where it stands, which step of which life it is, and what was done."""

from __future__ import annotations

import re
from dataclasses import dataclass

from quiesce.lab.trace.text import Message, Node, UnreadableError, step_of

_LINE = re.compile(r"(?P<at_s>\d+\.\d+) (?P<serial>\d+) (?P<role>decode|prefill)@(?P<life>\w{1,32}) <- (?P<step>.*)")
NOTHING = Node("Nothing", {})


@dataclass(frozen=True)
class Line:
    """`is_cut`: the writer shortened it, so what it did is not known."""

    file: str
    number: int
    serial: int
    role: str
    life: str
    text: str
    fact: Node
    effects: tuple[Node, ...]
    is_cut: bool = False

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"

    @property
    def whose(self) -> str:
        return f"{self.role}@{self.life}"

    @property
    def heard(self) -> Message | None:
        """The message whose arrival is this step."""
        envelope = self.fact.get("envelope")
        return envelope if isinstance(envelope, Message) else None

    @property
    def said(self) -> tuple[Message, ...]:
        """The messages that this step sends, in order."""
        return tuple(each["envelope"] for each in self.effects if each.name in ("Send", "Reply"))

    def has(self, name: str, **fields: object) -> bool:
        """Whether it has such an effect."""
        return any(
            each.name == name and all(each.get(field) == value for field, value in fields.items())
            for each in self.effects
        )


def line_of(file: str, number: int, text: str) -> Line | None:
    """The line, or None when it is no step of a machine. Raises UnreadableError when it begins like one."""
    found = _LINE.fullmatch(text)
    if found is None:
        return None
    serial, role, life, step = int(found["serial"]), found["role"], found["life"][:8], found["step"]
    try:
        fact, effects = step_of(step)
    except UnreadableError:
        if not step.endswith("..."):
            raise
        return Line(file, number, serial, role, life, step, NOTHING, (), is_cut=True)
    return Line(file, number, serial, role, life, step, fact, effects)
