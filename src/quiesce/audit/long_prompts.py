"""Prompts near and over the limits: what cannot fit must be an error, for whoever answers it reads pages that
nobody filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quiesce.audit.intervals import rate
from quiesce.audit.observation import Observation, Outcome
from quiesce.audit.plan import Arm, Plan
from quiesce.audit.target import Target
from quiesce.audit.verdict import Check, Status, made

TITLE = "Prompts that cannot fit"


def long_check(plan: Plan, target: Target, seen: Sequence[Observation]) -> Check:
    """Answered ones are suspect, unless the endpoint says that it cut them."""
    asked = [each for each in seen if each.arm == Arm.LONG and each.outcome is not Outcome.SKIPPED]
    over = [each for each in asked if each.role.startswith(("over", "far over"))]
    if not over:
        return made("long", TITLE, Status.NOT_TESTED, "No prompt over a limit was asked.")
    limits = _limits(plan, target)
    answered = [each for each in over if each.is_answer]
    cut = [each for each in answered if 0 < (each.usage.prompt_tokens or 0) <= limits[each.role]]
    unclear = [each for each in over if not each.is_decided]
    refused_near = [each for each in asked if each not in over and not each.is_answer]
    status = Status.WARNING if cut or unclear or refused_near else Status.PASSED
    if len(cut) < len(answered):
        status = Status.SUSPECTED
    elif len(unclear) == len(over):
        status = Status.NOT_TESTED
    said = f"{len(answered)} of {len(over)} prompts over a limit were answered."
    if unclear:
        said += f" {len(unclear)} were neither answered nor refused: the endpoint was busy, slow or broke off."
    details = [*_told(asked, cut), *(f"near the limit there was no answer ({each.outcome})" for each in refused_near)]
    return made("long", TITLE, status, said, details, found=rate(len(answered), len(over)))


def _limits(plan: Plan, target: Target) -> dict[str, int]:
    context = plan.options.context_tokens or target.context_tokens or 0
    pool = plan.options.pool_tokens or target.pool_tokens or context
    return {"over the pool": pool, "over the context": context, "far over the context": context}


def _told(asked: Sequence[Observation], cut: Sequence[Observation]) -> Iterator[str]:
    for each in asked:
        what = f"request {each.ask}, {each.role} ({each.prompt_chars} characters): {each.outcome}"
        what += f", HTTP {each.status}" if each.status else ""
        what += f", {each.usage.prompt_tokens} prompt tokens claimed" if each.usage.prompt_tokens else ""
        yield what + (": it was cut without a word" if each in cut else "")
