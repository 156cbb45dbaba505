"""The shipping machines keep every invariant that is proved of the model, on random ways through worlds.

This is what keeps model and machines in step: without a rule, a machine breaks the very invariant whose obligation the
proof loses. It samples; the explorer (`quiesce.lab.explorer`) is exhaustive within its bounds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from proof.model import Model
from proof.pull.model import PULL
from proof.push.model import PUSH
from proof.structures import meanings, violated

from quiesce.lab.explorer.config import RETRY, TWIN, A, B, Config, config
from quiesce.lab.explorer.moves import successors
from quiesce.lab.explorer.rounds import without_rounds
from quiesce.lab.explorer.search import draw
from quiesce.lab.explorer.world import World
from quiesce.lab.mutants.registry import BY_NAME
from tests.proof.pull_translation import PullTranslation
from tests.proof.translation import Translation

INVARIANTS = {False: meanings(PUSH), True: meanings(PULL)}
EVERYTHING = {
    "abort": 2,
    "ended": 1,
    "loss": 3,
    "copy": 3,
    "fail": 1,
    "quiesced": 1,
    "cut": 1,
    "crash_p": 1,
    "crash_d": 1,
    "close": 1,
    "clock": 4,
    "resend": 3,
}
WORLDS = {
    "one of each": config(requests=(A, B), pages=2, fence=True, **EVERYTHING),
    "two prefill ranks": config(requests=(A, B), pages=2, prefills=2, fence=True, **EVERYTHING),
    "two decode ranks": config(requests=(A, TWIN), pages=2, ranks=2, fence=True, **EVERYTHING),
    "two of each, no fence": config(requests=(A, RETRY), pages=2, prefills=2, ranks=2, again=True, **EVERYTHING),
    "capped calls": config(requests=(A, B), pages=4, lease_pages=2, chunks=2, batch=1, window=1, **EVERYTHING),
    "no fault": config(requests=(A, TWIN)),
}
PULLED: dict[str, Any] = EVERYTHING | {"rumour": 1, "join": 1}
PULL_WORLDS = {
    "pull, source pages used again": config(
        pull=True, requests=(A, B, RETRY), pages=2, sources=1, fence=True, **PULLED
    ),
    "pull, windows are revoked": config(pull=True, requests=(A, B), pages=1, sources=1, revoke=True, **PULLED),
    "pull, two lenders": config(pull=True, requests=(A, TWIN), pages=2, prefills=2, deaths=True, again=True, **PULLED),
    "pull, two decode ranks": config(pull=True, requests=(A, RETRY), pages=2, ranks=2, revoke=True, **PULLED),
    "pull, several reads": config(pull=True, pages=4, lease_pages=2, batch=1, sources=2, deaths=True, **PULLED),
}
ALL_WORLDS = WORLDS | PULL_WORLDS
STEPS = 100
WALKS = 5
MANY_WALKS = 60
SLOW_WALKS = 24
NOT_IN_A_WORLD = {"prefix_tree", "shares", "torn", "settled", "released_twice", "plain_stores"}


@pytest.fixture(autouse=True)
def _finite() -> Iterator[None]:
    with without_rounds():
        yield


def violations(world: Config, seed: int, steps: int) -> tuple[list[str], list[Any], Counter[str]]:
    """What is false first on a random way, the way, and how often each relation held anything."""
    choose = random.Random(seed)
    now, way, seen = World(world), [], Counter[str]()
    translation = PullTranslation(world) if world.pull else Translation(world)
    translation.see(("start",), now)
    for _ in range(steps):
        ways = sorted(successors(now), key=lambda step: repr(step[0]))
        if not ways:
            break
        label, now = ways[draw(choose, ways)]
        way.append(label)
        structure = translation.see(label, now)
        seen.update(name for name, points in structure.relations.items() if points)
        if wrong := violated(INVARIANTS[world.pull], structure):
            return wrong, way, seen
    return [], way, seen


def first_violation(world: Config, walks: int) -> tuple[int, list[str], list[Any]] | None:
    """The seed, what is false, and the way there; None when no walk finds anything."""
    for seed in range(walks):
        wrong, way, _ = violations(world, seed, STEPS)
        if wrong:
            return seed, wrong, way
    return None


@pytest.mark.parametrize("world", ALL_WORLDS.values(), ids=ALL_WORLDS.keys())
def test_the_machines_keep_what_is_proved(world: Config) -> None:
    assert first_violation(world, WALKS) is None


@pytest.mark.slow
@pytest.mark.parametrize("world", ALL_WORLDS.values(), ids=ALL_WORLDS.keys())
def test_the_machines_keep_what_is_proved_on_many_ways(world: Config) -> None:
    assert first_violation(world, SLOW_WALKS) is None


@pytest.mark.parametrize(("model", "worlds"), [(PUSH, WORLDS), (PULL, PULL_WORLDS)], ids=["push", "pull"])
def test_the_walks_meet_everything_that_a_world_has(model: Model, worlds: dict[str, Config]) -> None:
    """An invariant about relations that are always empty would be kept by anything."""
    missing = set(model.any_state.declared()) - NOT_IN_A_WORLD
    for seed in range(MANY_WALKS):
        for world in worlds.values():
            missing -= set(violations(world, seed, STEPS)[2])
        if not missing:
            break
    assert missing == set()


BROKEN = {
    "client abort does not hold": "released_is_proved",
    "prefill's FAIL does not hold": "released_is_proved",
    "deadline does not hold": "released_is_proved",
    "lost stream does not hold": "released_is_proved",
    "peer's new life does not hold": "released_is_proved",
    "ranks that said no BOUND need not ack": "released_is_proved",
    "the first rank's proof releases": "released_is_proved",
    "ack while writes are outstanding": "no_early_ack",
    "ack without marking the attempt aborted": "no_early_ack",
    "failed_in_flight does not poison": "flying_is_counted",
    "one decode rank's proof releases the whole attempt": "released_is_proved",
    "an ack of the next life counts": "end_is_remembered",
    "re-PUBLISH to the next life forgets the old grant": "committed_after_done",
    "commit after the first DONE (coverage off)": "committed_after_done",
    "no tombstone after the ack": "end_is_remembered",
    "never heard of it: ack without tombstone": "end_is_remembered",
    "what is closed opens again": "end_is_remembered",
    "held attempts are not listed as open": "closed_is_over",
    "the record goes at COMMITTED": "end_is_remembered",
    "a lost stream forgets tombstones": "end_is_remembered",
    "a late reject says DONE, and nobody looks at tags": "read_own",
    "the source is free when the request ends": "no_wild_read",
    "the source is free at count zero, poisoned or not": "no_wild_read",
    "a decode rank decides alone (coverage off)": "read_own",
    "a clock frees what is held": "released_is_proved",
    "PUBLISH is paired by room alone": "bound_to_own_digest",
    "the writer's death is a fence": "released_is_proved",
    "pull: client abort does not hold": "released_is_proved",
    "pull: deadline does not hold": "released_is_proved",
    "pull: lender's new life does not hold": "released_is_proved",
    "pull: ack while reads are outstanding": "no_early_ack",
    "pull: failed_in_flight does not poison": "flying_is_counted",
    "pull: a poisoned attempt is acked": "no_early_ack",
    "pull: one decode rank's reads speak for another's": "no_early_ack",
    "pull: commit before every read is terminal (coverage off)": "no_early_ack",
    "pull: held attempts are not listed as open": "closed_is_over",
    "pull: a failed read counts as landed, and nobody looks at tags": "read_own",
    "pull: lent pages are free when the request ends": "lent_is_kept",
    "pull: a clock frees the lent pages": "taken_back_is_proved",
    "pull: a replaced reader's loan is taken back": "taken_back_is_proved",
    "pull: what prefill revoked frees decode's page": "released_is_proved",
    "pull: ASK is paired by room alone, and any offer is read": "lent_is_kept",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_machine_without_the_rule_breaks_the_invariant(name: str) -> None:
    mutant = BY_NAME[name]
    assert mutant.world is not None
    with mutant.applied():
        found = first_violation(mutant.world, MANY_WALKS)
    assert found is not None
    assert BROKEN[name] in found[1], found
