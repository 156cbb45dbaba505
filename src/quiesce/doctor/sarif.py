"""A diagnosis as SARIF 2.1.0, which code scanners and editors show."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from quiesce import __version__
from quiesce.doctor.findings import Diagnosis, Finding, Rule, Severity
from quiesce.doctor.fleet import Evidence
from quiesce.doctor.rules import RULES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_LEVELS = {Severity.LEAK: "error", Severity.HANG: "error", Severity.EXPOSURE: "warning", Severity.ADVICE: "note"}
_SCORES = {Severity.LEAK: "9.5", Severity.HANG: "7.0", Severity.EXPOSURE: "6.0", Severity.ADVICE: "2.0"}
"""What code scanning sorts by (`security-severity`); an order, not a CVSS score."""


def as_sarif(diagnosis: Diagnosis) -> str:
    """One run. What was not told is in it as notifications, so that silence is not taken for health."""
    driver = {
        "name": "quiesce doctor",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in RULES],
    }
    notifications = [
        {"level": "note", "message": {"text": f"{untold.word}: {untold.what}. {untold.remedy}"}}
        for untold in diagnosis.untold
    ]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "results": [_result(finding) for finding in diagnosis.findings],
        "columnKind": "unicodeCodePoints",
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log)).decode() + "\n"


def _rule(rule: Rule) -> dict[str, object]:
    link = next((source for source in rule.sources if source.startswith("https://")), None)
    about: dict[str, object] = {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["security", rule.severity.word], "security-severity": _SCORES[rule.severity]},
    }
    return about | ({"helpUri": link} if link else {})


_INDEX = {rule.id: index for index, rule in enumerate(RULES)}


def _result(finding: Finding) -> dict[str, object]:
    return {
        "ruleId": finding.rule,
        "ruleIndex": _INDEX[finding.rule],
        "level": _LEVELS[finding.level],
        "message": {"text": f"{finding.says} Fix: {finding.fix}"},
        "locations": [_location(place) for place in finding.where],
    }


def _location(place: Evidence) -> dict[str, object]:
    """A file with its line; what is no file (an address, a command line) by name."""
    message = {"text": place.says or place.place}
    if "://" in place.input or place.input.startswith("-"):
        return {"logicalLocations": [{"fullyQualifiedName": place.place}], "message": message}
    physical: dict[str, object] = {"artifactLocation": {"uri": _uri(place.input)}}
    if place.line:
        physical["region"] = {"startLine": place.line}
    return {"physicalLocation": physical, "message": message}


def _uri(path: str) -> str:
    return f"file://{quote(path)}" if path.startswith("/") else quote(path)
