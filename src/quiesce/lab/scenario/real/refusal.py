"""Which scenarios real processes cannot tell, and why."""

from __future__ import annotations

from collections.abc import Iterator

from quiesce.lab.explorer.config import Config
from quiesce.lab.scenario.format import Scenario

COMMANDS = {
    "end": "only decode learns of a client that leaves while prefill does not",
    "cut": "a stream between two workers is not broken apart from its worker",
    "crash": "a worker that dies has no writes in the queue of a card: its plain stores end with it",
    "close": "a worker does not close its transport and go on",
    "fence": "shared memory is fenced by the writer's death only",
    "evict": "prefixes are not cached",
    "drop": "a write in shared memory does not vanish",
    "heal": "nothing can be said of a world that is not this one",
}


def refusals(scenario: Scenario) -> list[str]:
    """Why real processes cannot tell this scenario; nothing when they can."""
    said = dict.fromkeys([*_of_world(scenario.config), *_of_commands(scenario)])
    return list(said)


def _of_world(world: Config) -> Iterator[str]:
    if world.prefills > 1 or world.ranks > 1:
        yield "a worker has one rank"
    if world.chunks > 1 or world.batch:
        yield "a prompt is computed and written in one chunk"
    if world.cache:
        yield "prefixes are not cached"
    if world.fence:
        yield "shared memory is fenced by the writer's death only"
    if not world.covered:
        yield "decode always looks at page tags"
    if not world.fresh:
        yield "memory is new in every life"
    if len({each.room for each in world.requests}) < len(world.requests):
        yield "rooms are minted by the router, and no two requests get the same"


def _of_commands(scenario: Scenario) -> Iterator[str]:
    kept = () if scenario.kept is None else scenario.kept.steps
    for step in (*scenario.course.steps, *kept):
        verb = step.command.removeprefix("try ").partition(" ")[0]
        if verb != "heal" and verb in COMMANDS:
            yield COMMANDS[verb]
        if step.command.startswith("clock") and not step.command.endswith("at decode"):
            yield "clocks run out at decode only"
        if step.command.startswith("fail") and step.command.split(" (")[0].endswith("for good"):
            yield "a write in shared memory that failed may have landed in part"
