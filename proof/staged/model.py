"""Staged landing, put together."""

from __future__ import annotations

from proof.model import Model
from proof.staged.actions import ACTIONS, StagedRules
from proof.staged.invariants import SAFETY, SUPPORTING
from proof.staged.mutants import MUTANTS, STORIES
from proof.staged.state import FUNCTIONS, PARAMETERS, start

SIZES = {"Lease": 2, "Word": 1, "Cell": 3, "Value": 2, "Rank": 1, "Request": 2, "Digest": 2}

STAGED = Model(
    name="staged",
    start=start,
    rules=StagedRules(),
    actions=ACTIONS,
    extra={},
    safety=SAFETY,
    supporting=SUPPORTING,
    functions=FUNCTIONS,
    parameters=PARAMETERS,
    sizes=SIZES,
    stories=STORIES,
    mutants=MUTANTS,
)
