"""Several processes' expositions as one, for the router's `/metrics`."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from quiesce.telemetry.exposition import render_families

_log = logging.getLogger(__name__)


def merge_expositions(texts: list[str]) -> str:
    """Each family once, with one HELP and one TYPE, and all processes' series below it.

    A text that cannot be parsed is left out, whole, and logged: one broken worker must not hide the others. Where two
    texts disagree on a type, or name the same series, the earlier one stands.
    """
    merged: dict[str, Family] = {}
    for text in texts:
        for family in _parse(text):
            _add(merged.setdefault(family.name, Family(family.name, family.documentation, family.type)), family)
    return render_families(_distinct(family) for family in merged.values())


def _parse(text: str) -> list[Family]:
    try:
        return list(text_string_to_metric_families(text))
    except Exception:  # the parser fails in many ways on nonsense, IndexError and KeyError among them
        _log.warning("left out an exposition of %d characters that is no Prometheus text", len(text))
        return []


def _add(into: Family, family: Family) -> None:
    if into.type == family.type:
        into.samples.extend(family.samples)
    else:
        _log.warning("left out series of %s: one worker says %s, another %s", into.name, into.type, family.type)


def _distinct(family: Family) -> Family:
    family.samples = list(_first_of_each(family.samples))
    return family


def _first_of_each(samples: Iterable[Sample]) -> Iterable[Sample]:
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for sample in samples:
        key = sample.name, tuple(sorted(sample.labels.items()))
        if key not in seen:
            seen.add(key)
            yield sample
