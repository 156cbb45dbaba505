"""The rules, in one table. Each is a pure function over a fleet."""

from quiesce.doctor.findings import Rule
from quiesce.doctor.rules import (
    capacity,
    exposure,
    layouts,
    limits,
    offload,
    ours,
    releases,
    routers,
    sharing,
    vllm,
    words,
)

RULES: tuple[Rule, ...] = (
    *words.RULES,
    *limits.RULES,
    *releases.RULES,
    *offload.RULES,
    *capacity.RULES,
    *layouts.RULES,
    *routers.RULES,
    *vllm.RULES,
    *ours.RULES,
    *sharing.RULES,
    *exposure.RULES,
)
"""In the order of the page that is made from it."""
