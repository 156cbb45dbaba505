"""Pull, put together."""

from __future__ import annotations

from proof.model import Model
from proof.pull.actions import ACTIONS, EXTRA, PullRules
from proof.pull.invariants import SAFETY, SUPPORTING
from proof.pull.mutants import MUTANTS, STORIES, VARIANTS
from proof.pull.state import FUNCTIONS, PARAMETERS, start

SIZES = {"Rank": 1, "Life": 1, "DecodeLife": 1, "Lease": 2, "Page": 1, "Source": 1, "Read": 1, "Request": 2}

PULL = Model(
    name="pull",
    start=start,
    rules=PullRules(),
    actions=ACTIONS,
    extra=EXTRA,
    safety=SAFETY,
    supporting=SUPPORTING,
    functions=FUNCTIONS,
    parameters=PARAMETERS,
    sizes=SIZES,
    stories=STORIES,
    mutants=MUTANTS,
    variants=VARIANTS,
)
