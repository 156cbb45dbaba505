"""What answers say of themselves, where it cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quiesce.audit.intervals import rate
from quiesce.audit.observation import MOST_TOKENS, OTHER, Observation
from quiesce.audit.verdict import Check, Status, made

TITLE = "Usage and finish reasons that cannot be"


def claims_check(seen: Sequence[Observation]) -> Check:
    """Numbers of another request are a sign that its answer, or its context, was taken for this one."""
    answers = [each for each in seen if each.is_answer]
    told = [each for each in answers if each.usage.prompt_tokens is not None]
    expected = _expected(told)
    wrong = {each.ask: list(_impossible(each, expected)) for each in answers}
    odd = {each.ask: list(_odd(each)) for each in answers}
    impossible = sum(bool(problems) for problems in wrong.values())
    details = [f"request {ask}: {problem}" for found in (wrong, odd) for ask, all_ in found.items() for problem in all_]
    found = rate(impossible, len(answers))
    if not answers:
        return made("claims", TITLE, Status.NOT_TESTED, "Nothing was answered.", found=found)
    strange = sum(bool(problems) for problems in odd.values())
    status = Status.SUSPECTED if impossible else Status.WARNING if strange else Status.PASSED
    if status is Status.PASSED and not told:
        return made("claims", TITLE, Status.NOT_TESTED, "No answer told its usage.", found=found)
    said = f"{impossible} of {len(answers)} answers claim what cannot be; usage was told by {len(told)}."
    return made("claims", TITLE, status, said, details, found=found)


def _expected(told: Sequence[Observation]) -> dict[int, int]:
    """Prompt tokens by victim: what the tokenizer counted, else what most answers to that prompt say."""
    expected: dict[int, int] = {}
    for each in told:
        victim = each.ask if each.of is None else each.of
        expected.setdefault(victim, each.usage.prompt_tokens or 0)
    return expected | {each.ask: each.counted_tokens for each in told if each.counted_tokens is not None}


def _impossible(each: Observation, expected: dict[int, int]) -> Iterator[str]:
    usage = each.usage
    if not usage.can_be:
        yield f"its usage cannot be: less than nothing, or {MOST_TOKENS} tokens and more"
        return
    wanted = expected.get(each.ask if each.of is None else each.of)
    if usage.prompt_tokens is not None and wanted is not None and usage.prompt_tokens != wanted:
        yield f"its prompt has {wanted} tokens, and {usage.prompt_tokens} are claimed"
    if usage.completion_tokens is not None and usage.completion_tokens > each.max_tokens:
        yield f"{usage.completion_tokens} tokens are claimed where at most {each.max_tokens} were asked for"
    if usage.completion_tokens == 0 and each.text_chars:
        yield f"{each.text_chars} characters are said to be no token"
    if (usage.cached_tokens or 0) > (usage.prompt_tokens or usage.cached_tokens or 0):
        yield f"{usage.cached_tokens} tokens of {usage.prompt_tokens} are claimed to be cached"


def _odd(each: Observation) -> Iterator[str]:
    """What is wrong, and no sign of a leak by itself."""
    usage = each.usage
    if each.finish == OTHER:
        yield "its finish reason is none of the API's"
    if each.finish == "length" and (usage.completion_tokens or each.max_tokens) < each.max_tokens:
        yield f"it ended by length after {usage.completion_tokens} of {each.max_tokens} tokens"
    if not usage.can_be:
        return
    parts = (usage.prompt_tokens or 0) + (usage.completion_tokens or 0)
    if usage.total_tokens is not None and usage.prompt_tokens is not None and usage.total_tokens != parts:
        yield f"{usage.total_tokens} tokens in all are not the sum of {parts}"
