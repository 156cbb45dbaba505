"""The layers that should see a mutant, one function each: "" when this one does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from proof.models import MODELS
from proof.mutants import judge

from quiesce.errors import QuiesceError
from quiesce.lab.explorer.search import explore
from quiesce.lab.explorer.worlds import SMALL
from quiesce.lab.mutants.mutant import Mutant
from quiesce.lab.mutants.pull import PULL
from quiesce.lab.swarm.campaign import Order, carry_out
from quiesce.lab.swarm.catches import CATCHES
from quiesce.lab.swarm.landing_mutants import LANDING
from quiesce.lab.swarm.parameters import Way
from tests.mutants.known import BY_NAME
from tests.mutants.proved import PROVED
from tests.proof.test_machines import first_violation
from tests.protocol import checks, fair_checks, pull_checks
from tests.worker import landing_checks

LAYERS = ("explorer", "checks", "walks", "proof", "swarm")
NOTICED = (AssertionError, pytest.fail.Exception, QuiesceError, KeyError)
QUEUES = {"fair", "quota", "breaker"}
"""Rules of the router alone: a cluster is the first layer that has one, and it asks for no share."""
UNKNOWN_WORLD = "any two faults, fence"
UNKNOWN_PULL = "pull, any two faults, windows revoked, deaths known"
SEEDS, SIMULATED_S = range(4), 20.0
WALKS = 30


def explorer(mutant: Mutant) -> str:
    """The invariant that breaks in the mutant's world, and in how few moves; in a wide world if it has none."""
    if mutant.rule in QUEUES or mutant in LANDING:
        return ""
    world = mutant.world or replace(SMALL[UNKNOWN_PULL if mutant in PULL else UNKNOWN_WORLD], limit=15_000)
    with mutant.applied():
        found = explore(world)
    if not found.violation or found.violation == "limit":
        return ""
    broken, _, how = found.violation.partition(":")
    at_rest = " at rest" if how.endswith("(healed)") else ""
    return f"`{broken}`{at_rest} after {len(found.trace)} moves"


CHECKS = {check.__name__: check for check in (*checks.ALL, *pull_checks.ALL, *fair_checks.ALL, *landing_checks.ALL)}


def checks_that_fail() -> list[str]:
    return [name for name, check in CHECKS.items() if _fails(check)]


def unit_checks(mutant: Mutant) -> str:
    """The checks of single rules that fail; the mutant's own first."""
    with mutant.applied():
        failing = sorted(checks_that_fail(), key=lambda name: name != mutant.check)
    more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    return f"`{failing[0]}`{more}" if failing else ""


def _fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except NOTICED:
        return True
    return False


def walks(mutant: Mutant) -> str:
    """The invariant of the proof that a state of the real machines breaks, on a random way."""
    if mutant.world is None or mutant.world.cache or mutant.symptom == "no_leak":
        return ""  # the walks have no prefix tree, and no proof is about what happens at last
    with mutant.applied():
        found = first_violation(mutant.world, WALKS)
    return "" if found is None else f"`{found[1][0]}`"


def proof(mutant: Mutant) -> str:
    """The obligation that the model loses with the same rule left out, when it leads to harm from the start."""
    said = PROVED.get(mutant.name)
    if said is None:
        return ""
    which, name = said
    model = MODELS[which]
    proved = next(each for each in model.mutants if each.name == name)
    return f"`{proved.breaks}`" if judge(model, proved).killed else ""


def swarm(mutant: Mutant) -> str:
    """The property that breaks in a simulated cluster, and with which seed."""
    way = Way("pull") if mutant in PULL else Way("push", "staged" if mutant in LANDING else "direct")
    known = [(each.seed, each.seconds) for each in CATCHES if each.mutant == mutant.name]
    tried = [Order(*each, "", mutant.name, way) for each in known or [(seed, SIMULATED_S) for seed in SEEDS]]
    for order in () if mutant.rule in QUEUES else tried:
        outcome = carry_out(order)
        if outcome.violation:
            return f"`{outcome.violation}`, seed {order.seed}"
    return ""


SEES: dict[str, Callable[[Mutant], str]] = dict(zip(LAYERS, (explorer, unit_checks, walks, proof, swarm), strict=True))


def seen_by(name: str, layers: Sequence[str]) -> dict[str, str]:
    """What each layer says of one mutant."""
    return {layer: SEES[layer](BY_NAME[name]) for layer in layers}
