"""All mutants of all layers: those of the machines and of the router, and those of staged landing."""

from __future__ import annotations

from quiesce.lab.mutants.mutant import Mutant
from quiesce.lab.mutants.registry import MUTANTS as OF_MACHINES
from quiesce.lab.swarm.landing_mutants import LANDING

MUTANTS = (*OF_MACHINES, *LANDING)
BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in MUTANTS}
