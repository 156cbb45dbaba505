"""A trace of the explorer as a scenario file: the way to a violation, and the same way with the rule in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from quiesce.errors import invariant
from quiesce.lab.explorer.config import Config
from quiesce.lab.patches import Patch, patched
from quiesce.lab.scenario.format import Course, Prose, Scenario, Step, printed
from quiesce.lab.scenario.replay import Story, in_place, replayed
from quiesce.lab.scenario.wording import Choices

FOUND = "The shortest way to a broken invariant, as the explorer found it."
SAME = "The same commands."


def recorded(
    config: Config,
    trace: Iterable[Any],
    violation: str,
    *,
    title: str,
    rule: str = "",
    without: str = "",
    patches: Iterable[Patch] = (),
) -> Scenario:
    """The scenario of `trace`, labels of `successors` in order from the first state of `config`'s world.

    `patches` are what `without` names; they must not be in place now. With them, or in a world that leaves something
    out itself, the scenario has a second course: the same commands with the rule in place.
    """
    patches = tuple(patches)
    with patched(*patches):
        steps = _told(Story(config), trace)
    name, _, detail = violation.partition(":")
    if detail.endswith("(healed)"):
        steps.append(Step("heal"))
    elif violation:
        steps.append(Step(f"expect {name} broken"))
    scenario = Scenario(title, config, Course((Prose((FOUND,)), *steps)), rule=rule, without=without)
    scenario = replayed(scenario, patches)
    honest = config if patches else in_place(config)
    if not patches and honest == config:
        return scenario
    return replace(scenario, kept=_kept(Story(honest), scenario.course.steps))


def _told(story: Story, trace: Iterable[Any]) -> list[Step]:
    steps = []
    for label in trace:
        choices = Choices(story.world, story.names)
        command = choices.command_for(label)
        invariant(command is not None, "trace_is_of_this_world", str(label))
        steps.append(Step(choices.said(str(command))))
        story.tell(steps[-1])
    return steps


def _kept(story: Story, steps: tuple[Step, ...]) -> Course:
    """The same commands; those that cannot be given any more are tried. What was equal is told once."""
    same, kept = 0, list[Step]()
    for step in steps:
        command = step.command
        if command.startswith("expect "):
            command = "expect nothing broken"
        elif command != "heal" and len(Choices(story.world, story.names).meant(command)) != 1:
            command = f"try {command}"
        told = Step(command, story.tell(Step(command)))
        if not kept and told == step:
            same += 1
        else:
            kept.append(told)
    if not kept or kept[-1].command != "heal":
        kept.append(Step("heal", story.tell(Step("heal"))))
    return Course((Prose((SAME,)), *kept), same)


def write(config: Config, trace: Iterable[Any], violation: str, mutant: Any = None) -> str:
    """The text of a scenario file for what `explore` found: its trace and its violation, `mutant` left out.

    The mutant's patches must not be in place while this is called.
    """
    if mutant is None:
        return printed(recorded(config, trace, violation, title=violation.partition(":")[0] or "a course"))
    name, rule = mutant.name, _place(mutant.rule)
    told = recorded(config, trace, violation, title=name, rule=rule, without=name, patches=mutant.patches)
    return printed(told)


def _place(rule: str) -> str:
    """Where the protocol's page states a mutant's rule: by number, or in a section."""
    if rule == "id":
        return "section 2"
    return f"section {rule[:-1]}" if rule.endswith(".") else rule


__all__ = ["recorded", "write"]
