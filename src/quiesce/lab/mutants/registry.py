"""All mutants, by name."""

from __future__ import annotations

from quiesce.lab.mutants.handoff import HANDOFF
from quiesce.lab.mutants.mutant import Mutant
from quiesce.lab.mutants.pull import PULL
from quiesce.lab.mutants.router import ROUTER

MUTANTS = (*HANDOFF, *PULL, *ROUTER)
BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in MUTANTS}
