"""The alert rules and the dashboard name only metrics, labels and values that the table has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiesce.telemetry.table import CONSTANT_LABELS, LABELS, METRICS, Kind

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "quiesce-alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "quiesce.json"
PAGE = ROOT / "docs" / "observability.md"

SERIES = {
    f"{metric.exposed_name}{suffix}": frozenset((*CONSTANT_LABELS, *metric.labels, *extra))
    for metric in METRICS
    for suffix, extra in (
        (("_bucket", ("le",)), ("_sum", ()), ("_count", ())) if metric.kind is Kind.HISTOGRAM else (("", ()),)
    )
}
_MATCHERS = re.compile(r"(quiesce_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])


def problems(expression: str) -> list[str]:
    """What an expression names that the table does not have."""
    found = [f"no series {name}" for name, _ in _MATCHERS.findall(expression) if name not in SERIES]
    known = [SERIES.get(name, frozenset()) for name, _ in _MATCHERS.findall(expression)]
    for name, matchers in _MATCHERS.findall(expression):
        for label, _, value in _MATCHER.findall(matchers):
            found += [] if label in SERIES.get(name, ()) else [f"{name} has no label {label}"]
            found += [f"{label} is never {word}" for word in value.split("|") if not _may_be(label, word)]
    for labels in _GROUPING.findall(expression):
        grouped = [label.strip() for label in labels.split(",")]
        found += [f"nothing here has {label}" for label in grouped if not any(label in each for each in known)]
    return found


def _may_be(label: str, value: str) -> bool:
    """Values of free text are not listed; those that are stand in backquotes."""
    listed = re.findall(r"`(\w+)`", LABELS.get(label, ""))
    return value.startswith("$") or len(listed) < 2 or value in listed


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_what_it_names_exists(title: str, expression: str) -> None:
    assert problems(expression) == [], title
    assert _MATCHERS.search(expression), title
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(quiesce_release_total[5m])", "no series quiesce_release_total"),
        ("quiesce_hold_seconds", "no series quiesce_hold_seconds"),
        ('quiesce_pages{stat="held"}', "quiesce_pages has no label stat"),
        ('quiesce_pages{state=~"held|hold"}', "state is never hold"),
        ("sum by (proof) (quiesce_pages)", "nothing here has proof"),
        ('quiesce_ready{role="routers"}', "role is never routers"),
    ],
)
def test_the_check_sees_mistakes(expression: str, problem: str) -> None:
    assert problem in problems(expression)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_is_whole_and_explained(rule: dict[str, Any]) -> None:
    """It has a severity, words for people, and a section on the page that its runbook names."""
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"summary", "description"} < rule["annotations"].keys()
    assert rule["annotations"]["runbook"] == f"docs/observability.md#{rule['alert'].lower()}"
    assert f"\n### {rule['alert']}\n" in PAGE.read_text(encoding="utf-8")
    by_itself = dict(re.findall(r"\{\{ \$labels\.(\w+) (\}\})", " ".join(rule["annotations"].values())))
    assert all(any(label in SERIES[name] for name, _ in _MATCHERS.findall(rule["expr"])) for label in by_itself)


def test_alerts_have_distinct_names() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))


def test_the_dashboard_is_well_formed() -> None:
    """Distinct ids, no overlap on the grid of 24 columns, every query on the chosen data source."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert dashboard["uid"] == "quiesce"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    cells = [cell for panel in dashboard["panels"] for cell in _cells(**panel["gridPos"])]
    assert len(cells) == len(set(cells))
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in panels() for target in panel["targets"])


def _cells(x: int, y: int, w: int, h: int) -> list[tuple[int, int]]:
    assert x + w <= 24
    return [(column, row) for column in range(x, x + w) for row in range(y, y + h)]


def names(expression: str) -> set[str]:
    return {name for name, _ in _MATCHERS.findall(expression)}


def test_what_ends_single_requests_is_seen() -> None:
    """Errors of computing, deadlines and open breakers: an alert and a place on the dashboard for each."""
    wanted = {"quiesce_compute_errors_total", "quiesce_deadlines_total", "quiesce_breaker"}
    alerts = [rule["expr"] for rule in rules()]
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    for expressions_of in (alerts, shown):
        assert wanted <= set().union(*(names(each) for each in expressions_of))


def test_the_hold_inequality_is_on_the_dashboard() -> None:
    shown = {name for panel in panels() for target in panel["targets"] for name, _ in _MATCHERS.findall(target["expr"])}
    for term in ("hold", "abort_propagation", "abort_answer", "remaining_compute", "inflight_write"):
        assert f"quiesce_{term}_seconds_bucket" in shown
