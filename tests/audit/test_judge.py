"""Verdicts from observations that were written by hand, and plans from options."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from quiesce.audit import prompts
from quiesce.audit.judge import divergence_check, ends_check
from quiesce.audit.long_prompts import long_check
from quiesce.audit.observation import Comparison, Observation, Outcome, Usage
from quiesce.audit.options import Options
from quiesce.audit.plan import EVENTS, TIMES, Arm, Manner, Plan, make_plan
from quiesce.audit.target import Target
from quiesce.audit.tenancy import AGAIN, KNOWN, NEW, WARMS, cached_check, timing_check
from quiesce.audit.verdict import Status

TARGET = Target(url="http://h", model="m", context_tokens=4096, pool_tokens=3000)


def plan(**chosen: Any) -> Plan:
    return make_plan(Options(**{"seed": 3, "victims": 48, "allow_aborts": True} | chosen), TARGET)


def seen(role: str, arm: Arm = Arm.TENANTS, **more: Any) -> Observation:
    usual = {
        "ask": 1, "of": None, "after": None, "stratum": 0, "fresh_connection": False, "second_key": False, "code": "",
        "max_tokens": 8, "prompt_chars": 9, "outcome": Outcome.FINISHED, "status": 200, "finish": "stop", "hits": (),
        "usage": Usage(), "text_hash": "", "text_chars": 1, "letters": 1, "began_s": 0.0, "ttft_s": None,
        "total_s": 1.0, "retries": 0, "manner": None, "leave_ttfts": None, "leave_events": None,
    }  # fmt: skip
    return Observation(role=role, arm=arm.value, **usual | more)


def compared(arm: Arm, strange: int, equal: int, stratum: int) -> list[Comparison]:
    more = {"solo": 0, "arm": arm.value, "stratum": stratum, "same_chars": 0, "chars": 1}
    return [Comparison(victim=i, is_equal=i >= strange, **more) for i in range(strange + equal)]  # type: ignore[arg-type]


# ---------------------------------------------------------------- plans


def test_arms_are_alike_but_for_the_aborts() -> None:
    made = plan()
    strata = {
        arm: Counter(pair.victim.stratum for each in made.rounds if each.arm is arm for pair in each.pairs)
        for arm in (Arm.CONCURRENT, Arm.ABORT)
    }
    assert strata[Arm.CONCURRENT] == strata[Arm.ABORT]
    leaves = {arm: {p.leave for r in made.rounds if r.arm is arm for p in r.pairs} for arm in strata}
    assert leaves[Arm.CONCURRENT] == leaves[Arm.ABORT]
    assert len(leaves[Arm.ABORT]) == (len(TIMES) + len(EVENTS)) * len(Manner)
    assert {(p.donor.leave is not None) for r in made.rounds if r.arm is Arm.CONCURRENT for p in r.pairs} == {False}


def test_every_victim_has_one_solo_and_half_of_them_come_first() -> None:
    made = plan()
    victims = {pair.victim.id for each in made.rounds for pair in each.pairs}
    before = {ask.of for ask in made.before if ask.arm is Arm.ALONE}
    after = {ask.of for ask in made.after}
    assert before | after == victims
    assert not before & after
    assert len(before) == len(after)


def test_no_prompt_holds_anothers_marker() -> None:
    made = plan(victims=16, two_keys=True)
    for ask in made.asks:
        foreign = [marker for marker in made.markers if marker.id not in ask.own and marker.phrase in ask.content]
        assert foreign == []
        assert all(made.markers[own].phrase in ask.content for own in ask.own)


def test_long_prompts_are_numbers_until_they_are_sent() -> None:
    for ask in plan().long:
        assert len(ask.content) < 64
        assert len(ask.text) == ask.chars > 10 * len(ask.content)
    assert [len(prompts.common(words)) for words in range(60)] == [prompts.common_chars(words) for words in range(60)]


@pytest.mark.parametrize(
    ("context_tokens", "asked"),
    [(600_000, ["near the limit", "over the pool", "over the context"]), (2**31, ["near the limit", "over the pool"])],
)
def test_what_the_budget_has_no_room_for_is_not_asked_and_said(context_tokens: int, asked: list[str]) -> None:
    target = msgspec.structs.replace(TARGET, context_tokens=context_tokens)
    made = make_plan(Options(seed=3, budget_tokens=800_000), target)
    assert [ask.role for ask in made.long] == asked
    assert made.tokens <= 800_000
    assert any(f"far over the context, of about {context_tokens * 3 // 2} tokens" in each for each in made.untested)


def test_no_prompt_is_longer_than_memory_likes_whatever_the_budget() -> None:
    target = msgspec.structs.replace(TARGET, context_tokens=2**31, pool_tokens=None)
    made = make_plan(Options(seed=3, budget_tokens=10**12), target)
    assert made.long == ()
    assert sum("characters" in each for each in made.untested) == 3


def test_long_prompts_surround_the_limits() -> None:
    assert [ask.role for ask in plan().long] == [
        *("near the limit", "over the pool", "over the context", "far over the context")
    ]


def test_a_passive_plan_leaves_nobody() -> None:
    assert not [ask for ask in plan(allow_aborts=False).asks if ask.leave]


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(("with_aborts", "status"), [(12, Status.SUSPECTED), (6, Status.WARNING), (4, Status.PASSED)])
def test_aborts_that_make_more_answers_differ_are_suspect(with_aborts: int, status: Status) -> None:
    """Batch arithmetic makes 2 of 24 differ in any arm."""
    pairs = [
        each
        for stratum in (0, 1)
        for each in (
            *compared(Arm.ABORT, with_aborts, 24 - with_aborts, stratum),
            *compared(Arm.CONCURRENT, 2, 22, stratum),
        )
    ]
    check = divergence_check(plan(), pairs)
    assert check.status is status
    assert check.p is not None
    assert "95 % interval" in check.said


def test_a_rate_that_depends_on_the_question_alone_is_not_suspect() -> None:
    """All of stratum 0 differ, none of stratum 1; the abort arm happened to have more of stratum 0."""
    pairs = [
        *compared(Arm.ABORT, 20, 0, 0),
        *compared(Arm.ABORT, 0, 4, 1),
        *compared(Arm.CONCURRENT, 4, 0, 0),
        *compared(Arm.CONCURRENT, 0, 20, 1),
    ]
    assert divergence_check(plan(), pairs).p == 1.0


def test_one_difference_is_suspect_where_none_was_promised() -> None:
    pairs = compared(Arm.CONCURRENT, 1, 30, 0)
    assert divergence_check(plan(bit_exact=True), pairs).status is Status.SUSPECTED
    assert divergence_check(plan(), []).status is Status.NOT_TESTED


def test_an_arm_that_was_not_answered_is_not_tested() -> None:
    pairs = [each for stratum in range(8) for each in compared(Arm.CONCURRENT, 0, 5, stratum)]
    assert divergence_check(plan(), pairs).status is Status.NOT_TESTED


@pytest.mark.parametrize(
    ("outcome", "http", "status"),
    [
        (Outcome.REFUSED, 400, Status.PASSED),
        (Outcome.REFUSED, 503, Status.NOT_TESTED),
        (Outcome.REFUSED, 429, Status.NOT_TESTED),
        (Outcome.TIMEOUT, 0, Status.NOT_TESTED),
        (Outcome.FINISHED, 200, Status.SUSPECTED),
    ],
)
def test_who_had_no_time_for_a_long_prompt_has_not_refused_it(outcome: Outcome, http: int, status: Status) -> None:
    prompts = [seen(role, Arm.LONG, outcome=outcome, status=http) for role in ("over the context", "over the pool")]
    assert long_check(plan(), TARGET, prompts).status is status
    half = [prompts[0], seen("over the context", Arm.LONG, outcome=Outcome.REFUSED, status=400)]
    assert long_check(plan(), TARGET, half).status is (Status.WARNING if status is Status.NOT_TESTED else status)


def test_answers_that_end_in_errors_after_aborts_are_a_warning() -> None:
    """As of a server that notices foreign context and ends the answer."""
    lost = [seen("victim", Arm.ABORT, outcome=Outcome.ERROR, code="context_changed") for _ in range(12)]
    well = [seen("victim", Arm.ABORT) for _ in range(12)] + [seen("victim", Arm.CONCURRENT) for _ in range(24)]
    check = ends_check(lost + well)
    assert check.status is Status.WARNING
    assert "significantly more" in check.said
    assert check.details[0].endswith("error, HTTP 200, context_changed")


def tenants(
    warm_s: float, again_s: float, known_s: float, new_s: float, cached: int | None = None
) -> list[Observation]:
    times = ((WARMS, warm_s), (AGAIN, again_s), (KNOWN, known_s), (NEW, new_s))
    return [
        seen(role, ttft_s=time_s + 0.0001 * i, usage=Usage(cached_tokens=cached if role == AGAIN else 0))
        for role, time_s in times
        for i in range(12)
    ]


@pytest.mark.parametrize(
    ("times", "status"),
    [
        ((0.5, 0.1, 0.1, 0.5), Status.SUSPECTED),
        ((0.5, 0.1, 0.5, 0.5), Status.PASSED),
        ((0.5, 0.5, 0.5, 0.5), Status.NOT_TESTED),
    ],
)
def test_time_tells_of_a_shared_cache(times: tuple[float, float, float, float], status: Status) -> None:
    assert timing_check(tenants(*times)).status is status


def test_cached_tokens_tell_only_where_the_cache_is_told_of() -> None:
    assert cached_check(tenants(0.5, 0.1, 0.5, 0.5)).status is Status.NOT_TESTED
    assert cached_check(tenants(0.5, 0.1, 0.5, 0.5, cached=64)).status is Status.PASSED
