"""The report for a terminal, and the plan for a dry run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from quiesce.audit.intervals import Rate
from quiesce.audit.marker import LENGTH
from quiesce.audit.plan import MOST_FALSE_POSITIVES, Plan
from quiesce.audit.report import Report, replay
from quiesce.audit.target import Target
from quiesce.audit.verdict import ALPHA, Check, Status

WIDTH = 110
_SIGNS = {
    Status.PASSED: "ok",
    Status.WARNING: "warning",
    Status.SUSPECTED: "SUSPECTED",
    Status.NOT_TESTED: "not tested",
}


def as_text(report: Report) -> str:
    """Plain text, no longer than a reader has patience for."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    verdict, target = report.verdict, report.target
    yield f"Audit of {target.url}, model {target.model or '(unnamed)'}: {report.headline}"
    yield f"{report.requests} requests, {report.tokens} tokens, {report.took_s:.0f} s, begun {report.began}"
    yield ""
    yield f"{'arm':<12}{'asked':>7}{'answered':>10}   {'differ from solo':<30}{'show a foreign marker':<30}"
    for row in verdict.arms:
        counts = f"{row.arm:<12}{row.asked:>7}{row.answered:>10}"
        yield f"{counts}   {show_rate(row.diverged):<30}{show_rate(row.marked):<30}"
    yield ""
    for check in verdict.checks:
        yield from _check(check)
    yield ""
    yield from _method(report)
    yield ""
    yield "Not tested:"
    for what in verdict.untested:
        yield from _wrapped(what, "- ")
    yield ""
    yield f"Again: {report.replay}"


def _check(check: Check) -> Iterator[str]:
    yield f"{_SIGNS[check.status]:<11} {check.title}"
    yield from _wrapped(check.said, " " * 12)
    for detail in check.details:
        yield from _wrapped(detail, " " * 12 + "- ")


def _method(report: Report) -> Iterator[str]:
    verdict = report.verdict
    said = (
        f"{verdict.markers} markers of {LENGTH} random syllables (76 bits each) were planted. {verdict.run} syllables "
        f"in a row count as found. {verdict.letters} letters of answers were searched: were the target clean, any hit "
        f"at all would have a probability of at most {verdict.false_positives:.2g}, a whole marker "
        f"{verdict.false_whole:.2g}. Rates have exact 95 % intervals (Clopper-Pearson; one-sided where nothing was "
        f"seen). Tests are exact, one-sided, at {ALPHA}."
    )
    yield from _wrapped(said, "")


def _wrapped(text: str, begin: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin))


def show_rate(rate: Rate) -> str:
    """`2 of 48 (0.5 % to 14 %)`."""
    return f"{rate.hits} of {rate.trials} ({rate.low:.1%} to {rate.high:.1%})" if rate.trials else "none compared"


def plan_text(plan: Plan, target: Target) -> str:
    """What would be asked, and what that costs."""
    options = plan.options
    rows = [
        ("alone, before", len(plan.before)),
        *((f"rounds of {arm}", 2 * sum(len(r.pairs) for r in plan.rounds if r.arm == arm)) for arm in _arms(plan)),
        ("long prompts", len(plan.long)),
        ("alone, after", len(plan.after)),
        ("tenants", len(plan.tenants)),
    ]
    how = "as measured" if target.measured else "a guess of tokens per character; nothing was asked"
    lines = [
        f"Plan for {target.url}, model {target.model or '(unnamed)'}, seed {options.seed}",
        *(f"  {name:<22}{count:>6} requests" for name, count in rows if count),
        f"  {'in all':<22}{plan.requests:>6} requests, at most {plan.tokens} tokens ({how}); a few more to measure",
        f"  {plan.victims} victims in each arm, {len(plan.markers)} markers; {plan.run} syllables in a row are a find",
        f"  (by which a clean target is accused with a probability of at most {MOST_FALSE_POSITIVES:g})",
        *(f"  {ask.role}: about {ask.chars} characters" for ask in plan.long),
        "Not tested:",
        *(f"- {what}" for what in plan.untested),
        f"To run it: {replay(options, target.url)}",
    ]
    return "\n".join(lines) + "\n"


def _arms(plan: Plan) -> list[str]:
    return sorted({each.arm.value for each in plan.rounds}, reverse=True)
