"""The whole audit against a small server: it finds each fault that was planted, and none where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce.audit.endpoint import Keys
from quiesce.audit.html_report import as_html
from quiesce.audit.junit import as_junit
from quiesce.audit.observation import Outcome
from quiesce.audit.options import Options
from quiesce.audit.report import Report, as_json
from quiesce.audit.session import audit, audit_plan
from quiesce.audit.text_report import as_text
from quiesce.audit.verdict import Check, Status
from quiesce.errors import PeerUnusable, UsageError

from .fake_openai import CONTEXT_TOKENS, OTHERS_TEXT, Faults, serving

SMALL = Options(seed=7, victims=8, answer_tokens=12, donor_tokens=60, victim_tokens=40, pause_s=0.0, concurrency=8)
TWO_KEYS = ("first-key", "second-key")


def nothing(stage: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


async def audited(faults: Faults | None = None, keys: Keys | None = None, **chosen: Any) -> Report:
    options = Options(**{name: getattr(SMALL, name) for name in SMALL.__struct_fields__} | chosen)
    async with serving(faults) as (_, url):
        return await audit(url, keys or Keys(), options, nothing)


def check(report: Report, name: str) -> Check:
    return next(each for each in report.verdict.checks if each.name == name)


def suspected(report: Report) -> set[str]:
    return {each.name for each in report.verdict.checks if each.status is Status.SUSPECTED}


async def test_a_clean_server_passes() -> None:
    faults = Faults(keys=TWO_KEYS)
    report = await audited(faults, Keys(*TWO_KEYS), allow_aborts=True, bit_exact=True, two_keys=True, tenant_probes=8)
    assert report.verdict.exit_code == 0
    passed = {each.name for each in report.verdict.checks if each.status is Status.PASSED}
    assert passed - {"tenants-timing"} == {"markers", "divergence", "ends", "claims", "long", "tenants-cached"}
    assert [row.arm for row in report.verdict.arms] == ["sequential", "concurrent", "abort"]
    assert all(row.answered == row.asked == row.diverged.trials for row in report.verdict.arms)
    assert 0 < report.verdict.false_positives < 1e-4
    assert Outcome.LEFT in {each.outcome for each in report.observations if each.leave_events}


@pytest.mark.parametrize("words", [3, 2])
async def test_a_marker_in_one_of_many_answers_is_found(words: int) -> None:
    report = await audited(Faults(leaks_every=17, leaked_words=words))
    assert suspected(report) == {"markers"}
    assert report.verdict.exit_code == 1
    found = check(report, "markers")
    assert found.rate is not None
    assert found.rate.hits >= 1
    assert ("the whole marker" if words == 3 else "8 of 12 syllables of marker") in found.details[0]


async def test_what_a_donor_left_behind_is_found_and_only_with_aborts() -> None:
    faults = Faults(leaks_after_abort=True)
    report = await audited(faults, allow_aborts=True)
    assert "markers" in suspected(report)
    assert "planted by a donor (abort)" in check(report, "markers").details[0]
    assert suspected(await audited(Faults(leaks_after_abort=True))) == set()


async def test_an_answer_that_differs_counts_where_none_may() -> None:
    faults = Faults(diverges_every=23)
    assert suspected(await audited(faults, bit_exact=True)) == {"divergence"}
    assert suspected(await audited(Faults(diverges_every=23))) == set()


async def test_an_answered_oversize_prompt_is_suspect() -> None:
    report = await audited(Faults(answers_oversize=True))
    assert suspected(report) == {"long"}
    assert check(report, "long").said == "2 of 2 prompts over a limit were answered."


async def test_a_prompt_that_is_cut_is_a_warning() -> None:
    report = await audited(Faults(cuts_oversize=True))
    assert check(report, "long").status is Status.WARNING
    assert report.verdict.exit_code == 0


async def test_usage_that_cannot_be_is_suspect() -> None:
    report = await audited(Faults(lies_in_usage=True))
    assert "claims" in suspected(report)
    assert "are claimed" in check(report, "claims").details[0]


@pytest.mark.parametrize("tokens", [10**18, -(10**18)])
async def test_usage_that_is_nonsense_is_suspect_and_spends_nothing(tokens: int) -> None:
    report = await audited(Faults(nonsense_from=12, nonsense_tokens=tokens))
    assert suspected(report) == {"claims"}
    assert "its usage cannot be" in check(report, "claims").details[0]
    assert all(each.outcome is not Outcome.SKIPPED for each in report.observations)
    assert 0 < report.tokens < SMALL.budget_tokens


@pytest.mark.parametrize("tokens", [10**6, 10**18, 10**401, -7])
async def test_an_endpoint_whose_counts_are_nonsense_is_told_so(tokens: int) -> None:
    with pytest.raises(PeerUnusable, match="nonsense"):
        await audited(Faults(nonsense_from=0, nonsense_tokens=tokens))


async def test_an_endpoint_whose_context_is_nonsense_is_told_so_unless_the_true_one_is_given() -> None:
    faults = Faults(context_tokens=10**401)
    with pytest.raises(PeerUnusable, match="--context-tokens"):
        await audited(faults)
    assert suspected(await audited(faults, context_tokens=CONTEXT_TOKENS)) == set()


async def test_usage_is_held_against_the_solo_where_there_is_no_tokenizer() -> None:
    report = await audited(Faults(lies_in_usage=True, has_tokenizer=False))
    assert "claims" in suspected(report)


async def test_a_cache_that_tenants_share_is_suspect() -> None:
    faults = Faults(keys=TWO_KEYS, shares_cache=True)
    report = await audited(faults, Keys(*TWO_KEYS), two_keys=True, tenant_probes=3)
    assert suspected(report) == {"tenants-cached"}


# ---------------------------------------------------------------- what must never be shown


async def test_no_report_holds_what_others_were_told_nor_a_key() -> None:
    """The leaking server says another user's text in answers, finish reasons, error messages and error codes."""
    faults = Faults(keys=TWO_KEYS, says_others_text=True, leaks_every=5)
    report = await audited(faults, Keys(*TWO_KEYS), two_keys=True, tenant_probes=2, allow_aborts=True)
    assert report.verdict.is_suspected
    for show in (as_text, as_json, as_junit, as_html):
        shown = show(report)
        for part in (OTHERS_TEXT, "Halloran", "biopsy", *TWO_KEYS):
            assert part not in shown


async def test_hashes_differ_from_audit_to_audit() -> None:
    """A hash of a short answer could be guessed, were its key known."""
    first, second = await audited(), await audited()
    assert not {each.text_hash for each in first.observations} & {each.text_hash for each in second.observations}


# ---------------------------------------------------------------- limits, and who cannot be audited


async def test_the_seed_repeats_every_prompt() -> None:
    prompts = []
    for _ in range(2):
        async with serving() as (fake, url):
            await audit(url, Keys(), SMALL, nothing)
            prompts.append({body["messages"][0]["content"] for body in fake.bodies})
    assert prompts[0] == prompts[1]


async def test_connections_are_kept_by_some_and_new_for_others() -> None:
    async with serving() as (fake, url):
        report = await audit(url, Keys(), SMALL, nothing)
        fresh = sum(each.fresh_connection for each in report.observations)
        assert 0 < fresh < len(report.observations)
        assert fresh <= len(fake.connections) <= fresh + SMALL.concurrency + 2


async def test_a_busy_server_is_asked_again_and_for_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiesce.audit.endpoint.RETRIES", 0)
    report = await audited(Faults(busy=1))
    assert report.verdict.exit_code == 0
    assert report.target.has_usage


async def test_a_server_that_stays_busy_cannot_be_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiesce.audit.endpoint.RETRIES", 0)
    with pytest.raises(PeerUnusable, match=r"HTTP 429, rate_limit_exceeded.* busy, or starting"):
        await audited(Faults(busy=1000))


async def test_a_server_that_starts_is_waited_for_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Faults(starting=1)) as (_, url):
        assert "over the context" in await audit_plan(url, Keys(), SMALL)
    monkeypatch.setattr("quiesce.audit.endpoint.SMALL_RETRIES", 0)
    async with serving(Faults(starting=1)) as (_, url):
        with pytest.raises(PeerUnusable, match="busy, or starting"):
            await audit_plan(url, Keys(), SMALL)


async def test_who_is_busy_only_under_load_cannot_be_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quick refusals are no time to a first token, by which donors would leave."""
    monkeypatch.setattr("quiesce.audit.endpoint.RETRIES", 0)
    with pytest.raises(PeerUnusable, match="HTTP 429"):
        await audited(Faults(busy_from=2))


async def test_a_server_without_usage_has_no_claims_to_test() -> None:
    report = await audited(Faults(refuses_usage=True))
    assert not report.target.has_usage
    assert check(report, "claims").status is Status.NOT_TESTED
    assert report.verdict.exit_code == 0


async def test_a_dry_run_asks_for_no_answer() -> None:
    async with serving() as (fake, url):
        said = await audit_plan(url, Keys(), SMALL)
        assert fake.bodies == []
    assert "in all" in said
    assert f"quiesce audit {url} --seed 7" in said
    assert "over the context: about" in said
    assert CONTEXT_TOKENS


async def test_a_budget_makes_the_plan_smaller_or_is_refused() -> None:
    report = await audited(victims=64, max_requests=120)
    assert report.requests <= 120
    assert report.victims_per_arm < 64
    assert any("victims in each arm" in each for each in report.verdict.untested)
    with pytest.raises(UsageError, match="the smallest audit needs"):
        await audited(budget_tokens=50)


async def test_who_cannot_be_audited_is_told_why() -> None:
    async with serving(Faults(keys=TWO_KEYS)) as (_, url):
        with pytest.raises(PeerUnusable, match="wants an API key"):
            await audit(url, Keys("wrong"), SMALL, nothing)
    with pytest.raises(PeerUnusable, match="does not answer"):
        await audit(url, Keys(), SMALL, nothing)
    with pytest.raises(UsageError, match="no password"):
        await audit("http://user:secret@127.0.0.1:1", Keys(), SMALL, nothing)
