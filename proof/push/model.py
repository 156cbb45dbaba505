"""Push, put together."""

from __future__ import annotations

from proof.model import Model
from proof.push import about_records, about_writes, decode_actions, invariants, prefill_actions, write_actions
from proof.push.mutants import MUTANTS, STORIES, VARIANTS
from proof.push.rules import PushRules
from proof.push.state import FUNCTIONS, PARAMETERS, start

SIZES = {
    "Rank": 1,
    "Life": 1,
    "DecodeLife": 1,
    "Attempt": 2,
    "Lease": 2,
    "Page": 1,
    "Source": 1,
    "Write": 1,
    "Room": 1,
    "Request": 2,
    "Digest": 2,
}

PUSH = Model(
    name="push",
    start=start,
    rules=PushRules(),
    actions=(*decode_actions.ACTIONS, *prefill_actions.ACTIONS, *write_actions.ACTIONS),
    extra=decode_actions.EXTRA | prefill_actions.EXTRA,
    safety=invariants.SAFETY,
    supporting=(*about_records.ABOUT_RECORDS, *about_writes.ABOUT_WRITES),
    functions=FUNCTIONS,
    parameters=PARAMETERS,
    sizes=SIZES,
    stories=STORIES,
    mutants=MUTANTS,
    variants=VARIANTS,
)
