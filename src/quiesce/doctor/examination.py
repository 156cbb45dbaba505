"""One examination: inputs become members, members a fleet, and the rules are asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from quiesce.doctor.answers import read_json, read_metrics
from quiesce.doctor.documents import Document, Kind, bounded, kind_of, read_file
from quiesce.doctor.endpoint import examine as examine_endpoint
from quiesce.doctor.findings import Diagnosis, Finding, Hit, Rule, Severity, Unknown, Untold
from quiesce.doctor.fleet import Fleet, Member, Traffic, plain
from quiesce.doctor.joining import TELLABLE, Environment, Group, joined
from quiesce.doctor.logs import read_log
from quiesce.doctor.manifests import read_manifest
from quiesce.doctor.rules import RULES
from quiesce.doctor.scripts import read_arguments, read_command, read_environment, read_unit
from quiesce.doctor.toml import read_toml
from quiesce.errors import UsageError

_READERS: Mapping[Kind, Callable[[Document], list[Member]]] = {
    Kind.COMMAND: read_command,
    Kind.UNIT: read_unit,
    Kind.MANIFEST: read_manifest,
    Kind.LOG: read_log,
    Kind.JSON: read_json,
    Kind.METRICS: read_metrics,
    Kind.TOML: read_toml,
}
_LABEL = re.compile(r"((?:prefill|decode|router|aggregated)(?:-\w{1,40})?)=(.+)", re.DOTALL)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_TRAFFIC = ("aborts-per-s", "tokens-per-request", "tenants")

MOST_MEMBERS = 200
"""Pairs grow with the square."""

ARGUMENTS = "--args"
"""How a command line that was given as text is named in findings."""


class Inputs(msgspec.Struct, frozen=True):
    """What a user gives: files and addresses (with labels), command lines, and what else is to be known."""

    names: Sequence[str] = ()
    arguments: Sequence[str] = ()
    tell: Sequence[str] = ()
    kind: Kind | None = None
    key: str | None = None


def examine(inputs: Inputs) -> Diagnosis:
    """Raises UsageError for what cannot be read, PeerUnusable for a server that tells nothing."""
    told = _tellings(inputs.tell)
    told_here = {name: value for name, value in told.items() if _VARIABLE.fullmatch(name)}
    environments = [Environment("--tell", told_here)]
    groups: list[Group] = []
    notes: list[str] = []
    for number, text in enumerate(inputs.arguments, 1):
        name = ARGUMENTS if len(inputs.arguments) == 1 else f"{ARGUMENTS} {number}"
        groups.append(Group(read_arguments(bounded(Document(name, text), Kind.COMMAND))))
    for given in inputs.names:
        match = _LABEL.fullmatch(given)
        label, name = (match[1], match[2]) if match else ("", given)
        members = _read(name, inputs, environments, notes)
        if members:
            groups.append(Group(members, label))
    if not groups:
        raise UsageError("Nothing was found that starts or is a server.", remedy="Give --kind if the input is one.")
    count = sum(len(group.members) for group in groups)
    if count > MOST_MEMBERS:
        raise UsageError(f"These inputs start {count} processes; {MOST_MEMBERS} are examined at most.")
    fleet = joined(groups, told, environments)
    return diagnosis(msgspec.structs.replace(fleet, traffic=_traffic(told)), notes)


def diagnosis(fleet: Fleet, notes: Iterable[str] = (), rules: Sequence[Rule] = RULES) -> Diagnosis:
    """Ask every rule. Pure."""
    findings: list[Finding] = []
    questions: dict[Unknown, list[str]] = {}
    for rule in rules:
        for seen in rule.check(fleet):
            if isinstance(seen, Hit):
                findings.append(_finding(rule, seen))
            elif rule.id not in questions.setdefault(seen, []):
                questions[seen].append(rule.id)
    order = {rule.id: number for number, rule in enumerate(rules)}
    findings.sort(key=lambda finding: (-finding.level, order[finding.rule]))
    untold = tuple(Untold(plain(asked.what), asked.remedy, tuple(ids), asked.word) for asked, ids in questions.items())
    return Diagnosis(fleet, tuple(dict.fromkeys(findings)), untold, tuple(map(plain, notes)))


def _finding(rule: Rule, hit: Hit) -> Finding:
    severity: Severity = rule.severity if hit.severity is None else hit.severity
    where = tuple(dict.fromkeys(hit.where))
    sources = hit.sources or rule.sources
    return Finding(rule.id, severity.word, rule.title, where, plain(hit.says), rule.why, plain(hit.fix), sources)


def _read(name: str, inputs: Inputs, environments: list[Environment], notes: list[str]) -> list[Member]:
    if name.startswith(("http://", "https://")):
        members, troubles = examine_endpoint(name, inputs.key)
        notes += troubles
        return members
    if "://" in name:
        raise UsageError(f"{name[:200]!r} is no http:// or https:// address.")
    document = read_file(name)
    kind = inputs.kind or kind_of(document)
    bounded(document, kind)
    if kind is Kind.ENVIRONMENT:
        environments.append(Environment(name, read_environment(document.text)))
        return []
    if document.cut:
        notes.append(f"{name}: only its beginning was read; it is too long.")
    members = _READERS[kind](document)
    if not members:
        notes.append(f"{name}: read as {kind}; nothing in it starts or is a server that is known.")
    return members


def _tellings(tell: Iterable[str]) -> dict[str, str]:
    told = {}
    for text in tell:
        name, equal, value = text.partition("=")
        if not equal or not (name in TELLABLE or name in _TRAFFIC or _VARIABLE.fullmatch(name)):
            raise UsageError(
                f"--tell {text[:100]}: cannot be told.",
                remedy=f"Tell NAME=VALUE, NAME being a variable or one of {', '.join([*TELLABLE, *_TRAFFIC])}.",
            )
        told[name] = value
    return told


def _traffic(told: Mapping[str, str]) -> Traffic:
    tenants = told.get("tenants")
    if tenants not in (None, "one", "several"):
        raise UsageError("--tell tenants is one or several.")
    several = None if tenants is None else tenants == "several"
    return Traffic(_amount(told, "aborts-per-s"), _amount(told, "tokens-per-request"), several)


def _amount(told: Mapping[str, str], name: str) -> float | None:
    try:
        return float(told[name]) if name in told else None
    except ValueError:
        raise UsageError(f"--tell {name}={told[name][:40]}: must be a number.") from None
