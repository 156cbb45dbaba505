"""A diagnosis as text for people and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from quiesce import __version__
from quiesce.doctor.findings import MEANINGS, Diagnosis, Finding, Rule, Severity, Untold, label
from quiesce.doctor.fleet import Role

WIDTH = 110


def as_text(diagnosis: Diagnosis) -> str:
    """What was found, the worst first; then what could not be judged."""
    lines = [f"Examined: {'; '.join(label(member) for member in diagnosis.fleet.members)}.", ""]
    for _rule, alike in groupby(diagnosis.findings, key=lambda finding: (finding.severity, finding.rule)):
        lines += [*_findings(list(alike)), ""]
    if diagnosis.untold:
        lines += ["Not told, and so not judged:"]
        lines += [line for untold in diagnosis.untold for line in _untold(untold)]
        lines.append("")
    lines += [f"note: {note}" for note in diagnosis.notes]
    lines.append(_verdict(diagnosis))
    return "\n".join(lines) + "\n"


def as_json(diagnosis: Diagnosis) -> str:
    """One object: tool, members, findings, untold, notes."""
    members = [
        {
            "engine": member.engine,
            "role": member.role,
            "name": member.name,
            "facts": {f.name.lower(): told for f, told in member.facts.items()},
        }
        for member in diagnosis.fleet.members
    ]
    body = {
        "tool": "quiesce doctor",
        "version": __version__,
        "members": members,
        "findings": diagnosis.findings,
        "untold": diagnosis.untold,
        "notes": diagnosis.notes,
    }
    return msgspec.json.format(msgspec.json.encode(body)).decode() + "\n"


def explained(rule: Rule) -> str:
    """All that is to be known of one rule."""
    lines = [f"{rule.id} ({rule.severity.word}): {rule.title}", "", *_wrapped(rule.why, "", ""), ""]
    lines += [
        f"{rule.severity.word}: {MEANINGS[rule.severity]}.",
        "",
        *(f"source: {source}" for source in rule.sources),
    ]
    return "\n".join(lines) + "\n"


def _findings(alike: Sequence[Finding]) -> Iterator[str]:
    """All cases of one rule, and once why it matters."""
    first = alike[0]
    yield f"{first.severity.upper()} {first.rule}: {first.title}"
    yield from _paragraph("why", first.why)
    for finding in alike:
        for place in finding.where:
            yield f"  at   {place.place}: {place.says}" if place.says else f"  at   {place.place}"
        yield from _paragraph("what", finding.says)
        yield from _paragraph("fix", finding.fix)
    sources = dict.fromkeys(source for finding in alike for source in finding.sources)
    yield from (f"  see  {source}" for source in list(sources)[:2])


def _paragraph(name: str, text: str) -> list[str]:
    return _wrapped(text, f"  {name:5}", "       ")


def _wrapped(text: str, first: str, others: str) -> list[str]:
    """Lines of a paragraph; flags stay whole, because they are copied."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _untold(untold: Untold) -> list[str]:
    text = f"- {untold.word}: {untold.what}. {untold.remedy} ({', '.join(untold.rules)})"
    return _wrapped(text, "", "  ")


def _verdict(diagnosis: Diagnosis) -> str:
    counts = [
        f"{count} {severity.word if count == 1 or severity is Severity.ADVICE else f'{severity.word}s'}"
        for severity in sorted(Severity, reverse=True)
        if (count := sum(finding.level is severity for finding in diagnosis.findings))
    ]
    workers = sum(member.role is not Role.ROUTER for member in diagnosis.fleet.members)
    if counts:
        return f"Found: {', '.join(counts)}."
    open_ends = " What was not told could change that." if diagnosis.untold else ""
    examined = "1 worker was" if workers == 1 else f"{workers} workers were"
    return f"Nothing found; {examined} examined.{open_ends}"
