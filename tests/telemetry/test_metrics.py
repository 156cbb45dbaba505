from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quiesce.errors import InvariantBroken
from quiesce.telemetry import docs
from quiesce.telemetry.metrics import METRICS, Kind, Metric, Telemetry
from quiesce.telemetry.table import CONSTANT_LABELS, LABELS

ROOT = Path(__file__).parents[2]


def _samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _value(telemetry: Telemetry, name: str, **labels: str) -> float:
    constant = {"role": "decode", "worker": "decode-0"}
    return _samples(telemetry.render())[name, tuple(sorted({**constant, **labels}.items()))]


def _verbs(telemetry: Telemetry) -> dict[Kind, Callable[..., None]]:
    return {Kind.COUNTER: telemetry.inc, Kind.GAUGE: telemetry.set, Kind.HISTOGRAM: telemetry.observe}


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry("decode", "decode-0")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_table_is_well_formed(metric: Metric) -> None:
    assert re.fullmatch(r"quiesce_[a-z_]+", metric.name)
    assert not metric.name.endswith("_total")
    assert metric.help.endswith(".")
    assert set(metric.labels) <= LABELS.keys() - set(CONSTANT_LABELS)
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith(f"_{metric.unit}")


def test_no_label_is_described_that_nobody_uses() -> None:
    used = {label for metric in METRICS for label in metric.labels}
    assert LABELS.keys() == used | set(CONSTANT_LABELS)


def test_every_metric_can_be_used_and_is_exposed(telemetry: Telemetry) -> None:
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        _verbs(telemetry)[metric.kind](metric.name, 1, **labels)
    text = telemetry.render()
    for metric in METRICS:
        assert f"# TYPE {metric.exposed_name} {metric.kind}\n" in text
        assert f"# HELP {metric.exposed_name} {metric.help}\n" in text
    assert all(dict(labels)["worker"] == "decode-0" for _, labels in _samples(text))


def test_values_are_what_was_put_in(telemetry: Telemetry) -> None:
    telemetry.inc("quiesce_releases", proof="drained")
    telemetry.inc("quiesce_releases", 2, proof="drained")
    telemetry.set("quiesce_pages", 31, state="held")
    telemetry.observe("quiesce_hold_seconds", 0.2)
    assert _value(telemetry, "quiesce_releases_total", proof="drained") == 3
    assert _value(telemetry, "quiesce_pages", state="held") == 31
    assert _value(telemetry, "quiesce_hold_seconds_count") == 1
    assert _value(telemetry, "quiesce_hold_seconds_bucket", le="0.25") == 1
    assert _value(telemetry, "quiesce_hold_seconds_bucket", le="0.1") == 0


def test_metrics_without_labels_are_there_from_the_start(telemetry: Telemetry) -> None:
    assert _value(telemetry, "quiesce_unsafe_releases_total") == 0


def test_no_created_series_are_exposed(telemetry: Telemetry) -> None:
    assert "_created" not in telemetry.render()


@pytest.mark.parametrize(
    ("kind", "name", "labels"),
    [
        (Kind.COUNTER, "quiesce_release", {"proof": "drained"}),
        (Kind.COUNTER, "quiesce_releases_total", {"proof": "drained"}),
        (Kind.GAUGE, "quiesce_releases", {"proof": "drained"}),
        (Kind.COUNTER, "quiesce_pages", {"state": "free"}),
        (Kind.HISTOGRAM, "quiesce_pages", {"state": "free"}),
        (Kind.COUNTER, "quiesce_releases", {}),
        (Kind.COUNTER, "quiesce_releases", {"prof": "drained"}),
        (Kind.COUNTER, "quiesce_releases", {"proof": "drained", "more": "x"}),
    ],
)
def test_a_typo_is_an_error(telemetry: Telemetry, kind: Kind, name: str, labels: dict[str, str]) -> None:
    with pytest.raises(InvariantBroken):
        _verbs(telemetry)[kind](name, 1, **labels)


def test_a_name_twice_in_the_table_is_an_error() -> None:
    metric = Metric(name="quiesce_x", kind=Kind.GAUGE, help="X.", unit="things")
    with pytest.raises((InvariantBroken, ValueError)):
        Telemetry("decode", "decode-0", (metric, metric))


def test_two_telemetries_share_nothing() -> None:
    one, other = Telemetry("decode", "decode-0"), Telemetry("decode", "decode-0")
    one.inc("quiesce_aborts_sent")
    assert _value(other, "quiesce_aborts_sent_total") == 0


def test_the_docs_page_is_up_to_date() -> None:
    """Run: python -m quiesce.telemetry.docs > docs/metrics.md"""
    assert (ROOT / "docs" / "metrics.md").read_text() == docs.page()
