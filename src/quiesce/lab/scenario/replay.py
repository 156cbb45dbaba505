"""A scenario's commands carried out on the explorer's world: what comes of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from quiesce.errors import QuiesceError, UsageError
from quiesce.ids import Peer
from quiesce.lab.explorer import between
from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.healing import heal
from quiesce.lab.explorer.lives import life
from quiesce.lab.explorer.world import World
from quiesce.lab.patches import Patch, patched
from quiesce.lab.scenario.format import Course, Item, Scenario, Step
from quiesce.lab.scenario.names import Names
from quiesce.lab.scenario.view import broken, line, outcome, view
from quiesce.lab.scenario.wording import Choices
from quiesce.protocol.messages import AbortAck, Envelope

_FORGED = re.compile(r"ABORT_ACK (\w+) from prefill (\d+)")

NOTHING_CHANGES = ("nothing changes",)
QUIET = "all is quiet, nothing is held without a named reason"


class Unexpected(QuiesceError):
    """What a scenario says it expects did not come about; `--rewrite` does not change that."""


class Story:
    """One way through a world, command by command. `label` is the explorer's, of the move that came last."""

    def __init__(self, config: Config, path: str = "scenario") -> None:
        self.world = World(config)
        self.names = Names(self.world)
        self.label: Any = None
        self._path = path

    def tell(self, step: Step) -> tuple[str, ...]:
        """Carry out a command; its outcome. Raises UsageError for one that is impossible or ambiguous."""
        self.label = None
        verb, _, rest = step.command.partition(" ")
        match verb:
            case "try":
                return self._try(step, rest)
            case "expect":
                return self._expect(step, rest)
            case "show":
                return tuple(line(subject, said) for subject, said in view(self.world, self.names).items())
            case "heal":
                return self._heal()
            case "forge":
                return self._forge(step, rest)
        return self._move(step, step.command)

    def _move(self, step: Step, command: str) -> tuple[str, ...]:
        choices = Choices(self.world, self.names)
        meant = choices.meant(command)
        if len(meant) != 1:
            raise self._puzzled(step, command, meant or choices.possible(), ambiguous=bool(meant))
        label, after = choices.step(meant[0])
        return self._go(label, after)

    def _go(self, label: Any, after: World) -> tuple[str, ...]:
        names = self.names.after(after)
        taken = label[1] if len(label) > 1 and isinstance(label[1], Envelope) else None
        lines = outcome(self.world, after, names, taken)
        self.world, self.names, self.label = after, names, label
        return lines or NOTHING_CHANGES

    def _puzzled(self, step: Step, command: str, could: list[str], *, ambiguous: bool) -> UsageError:
        wrong = f"'{command}' may mean several things" if ambiguous else f"'{command}' cannot happen here"
        listed = "\n".join(f"  {each}" for each in could) or "  nothing"
        head = "Say one of" if ambiguous else "What can happen"
        return UsageError(f"{self._path}:{step.line}: {wrong}. {head}:\n{listed}")

    def _try(self, step: Step, command: str) -> tuple[str, ...]:
        if Choices(self.world, self.names).meant(command):
            return self._move(step, command)
        return (f"cannot happen{self._why_not(command)}",)

    def _why_not(self, command: str) -> str:
        waiting = {f"submit {each.name}": each for each in self.world.waiting_d}
        if command not in waiting:
            return ""
        free = min(map(len, self.world.free))
        return f": pages needed {self.world.lacking(waiting[command])}, pages free {free}"

    def _forge(self, step: Step, what: str) -> tuple[str, ...]:
        """Put an ack on the wire that no machine sent."""
        match = _FORGED.fullmatch(what)
        number = match and self.names.attempt_of(match[1], self.world)
        if match is None or number is None:
            raise UsageError(f"{self._path}:{step.line}: only 'ABORT_ACK NAME from prefill N' can be forged.")
        rank = int(match[2])
        sender, to = Peer(rank, life("e", rank, 0)), Peer(0, self.world.receiver.incarnation)
        forged = Envelope(sender, to, number, AbortAck())
        return self._go((), self.world.but(wires=between.send(self.world.config, self.world.wires, (forged,))))

    def _heal(self) -> tuple[str, ...]:
        wrong = heal(self.world)
        if wrong is None:
            return (QUIET,)
        name, _, how = wrong.removesuffix(" (healed)").partition(": ")
        return (f"{name} broken: {self.names.reworded(how, self.world)}",)

    def _expect(self, step: Step, what: str) -> tuple[str, ...]:
        """Raises Unexpected."""
        wrong = broken(self.world, self.names)
        seen = {f"{name} broken" for name in wrong} or {"nothing broken"}
        seen |= {line(subject, said) for subject, said in view(self.world, self.names).items()}
        if what not in seen and not (what.startswith("no_leak") and heal(self.world)):
            kind = [each for each in seen if each.partition(":")[0] == what.partition(":")[0]]
            found = ", ".join(kind or sorted(each for each in seen if "broken" in each))
            raise Unexpected(f"{self._path}:{step.line}: expected '{what}'; but: {found}.")
        return ()


def replayed(scenario: Scenario, patches: Iterable[Patch], path: str = "scenario") -> Scenario:
    """The scenario with every outcome as it is now; without `patches` in its first course, with everything in place
    in its second. Raises UsageError and Unexpected, which name the line.
    """
    patches = tuple(patches)
    with patched(*patches):
        course = _retold(Story(scenario.config, path), scenario.course)
    if scenario.kept is None:
        return replace(scenario, course=course)
    story = Story(scenario.config if patches else in_place(scenario.config), path)
    for step in course.steps[: scenario.kept.same]:
        if story.tell(step) != step.outcome:
            raise Unexpected(f"{path}:{step.line}: '{step.command}' comes out otherwise with the rule in place.")
    return replace(scenario, course=course, kept=_retold(story, scenario.kept))


def in_place(config: Config) -> Config:
    """The world in which nothing is left out, where what is left out is a property of the world."""
    return replace(config, unsafe=False, fresh=True, refuses=True)


def _retold(story: Story, course: Course) -> Course:
    def retold(item: Item) -> Item:
        return replace(item, outcome=story.tell(item)) if isinstance(item, Step) else item

    return replace(course, items=tuple(retold(item) for item in course.items))
