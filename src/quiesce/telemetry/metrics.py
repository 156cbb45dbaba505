"""A process's metrics: written by name, read as Prometheus text."""

from __future__ import annotations

from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from quiesce.errors import InvariantBroken, invariant
from quiesce.telemetry.exposition import CONTENT_TYPE, render_families
from quiesce.telemetry.spans import Spans
from quiesce.telemetry.table import CONSTANT_LABELS, METRICS, Kind, Metric

__all__ = ["CONTENT_TYPE", "METRICS", "Kind", "Metric", "Telemetry"]

Instrument = Counter | Gauge | Histogram
Child = TypeVar("Child", Counter, Gauge, Histogram)


class Telemetry:
    """The metrics of one process; every series bears `role` and `worker`. Thread-safe.

    Every method takes a name of the table, of the right kind, and exactly its labels; anything else is our bug and
    raises InvariantBroken at first use. `counter`, `gauge` and `histogram` give the series itself, for hot paths.
    `spans` records traces; it is set where a process begins, and records nothing until then.
    """

    def __init__(self, role: str, worker: str, table: tuple[Metric, ...] = METRICS) -> None:
        self.spans = Spans()
        self._constant = {"role": role, "worker": worker}
        self._registry = CollectorRegistry(auto_describe=False)
        self._labels = {metric.name: frozenset(metric.labels) for metric in table}
        self._instruments = {metric.name: _instrument(metric, self._registry) for metric in table}
        invariant(len(self._instruments) == len(table), "one_metric_per_name")
        for metric in table:
            if not metric.labels:
                self._instruments[metric.name].labels(**self._constant)  # so that it is there, as 0, from the start

    def inc(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count `amount` more; `amount` is in the metric's unit."""
        self.counter(name, **labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self.gauge(name, **labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put one value into a histogram."""
        self.histogram(name, **labels).observe(value)

    def counter(self, name: str, **labels: str) -> Counter:
        return self._child(Counter, name, labels)

    def gauge(self, name: str, **labels: str) -> Gauge:
        return self._child(Gauge, name, labels)

    def histogram(self, name: str, **labels: str) -> Histogram:
        return self._child(Histogram, name, labels)

    def render(self) -> str:
        """Prometheus text format 0.0.4."""
        return render_families(self._registry.collect())

    def _child(self, kind: type[Child], name: str, labels: dict[str, str]) -> Child:
        instrument = self._instruments.get(name)
        if not isinstance(instrument, kind):
            raise InvariantBroken(f"no {kind.__name__.lower()} of that name is in the table: {name}")
        expected = self._labels[name]
        invariant(labels.keys() == expected, "metric_labels", f"{name} takes {sorted(expected)}, not {sorted(labels)}")
        return instrument.labels(**self._constant, **labels)


def _instrument(metric: Metric, registry: CollectorRegistry) -> Instrument:
    labels = (*CONSTANT_LABELS, *metric.labels)
    match metric.kind:
        case Kind.COUNTER:
            return Counter(metric.name, metric.help, labels, registry=registry)
        case Kind.GAUGE:
            return Gauge(metric.name, metric.help, labels, registry=registry)
        case Kind.HISTOGRAM:
            return Histogram(metric.name, metric.help, labels, registry=registry, buckets=metric.buckets)
