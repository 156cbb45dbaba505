"""Families of metrics as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render_families(families: Iterable[Family]) -> str:
    """Families as Prometheus text, without the `_created` series that nobody asked for."""
    return generate_latest(_Families([_without_created(family) for family in families])).decode()


class _Families(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families


def _without_created(family: Family) -> Family:
    created = f"{family.name}_created"
    kept = Family(family.name, family.documentation, family.type)
    kept.samples = [sample for sample in family.samples if sample.name != created]
    return kept
