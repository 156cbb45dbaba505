from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from quiesce.telemetry.merge import merge_expositions
from quiesce.telemetry.metrics import METRICS, Telemetry


def _two() -> list[str]:
    prefill, decode = Telemetry("prefill", "prefill-0"), Telemetry("decode", "decode-0")
    prefill.inc("quiesce_writes", 5, outcome="landed")
    for telemetry in (prefill, decode):
        telemetry.observe("quiesce_hold_seconds", 0.02)
        telemetry.set("quiesce_pages", 7, state="free")
    return [prefill.render(), decode.render()]


def test_each_family_has_one_head_and_all_series() -> None:
    texts = _two()
    merged = merge_expositions(texts)
    for metric in METRICS:
        assert merged.count(f"# TYPE {metric.exposed_name} {metric.kind}\n") == 1
        assert merged.count(f"# HELP {metric.exposed_name} ") == 1
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
    assert sorted(line for line in merged.splitlines() if not line.startswith("#")) == sorted(lines)


def test_series_of_a_family_stand_together() -> None:
    names = [
        sample.name for family in text_string_to_metric_families(merge_expositions(_two())) for sample in family.samples
    ]
    pages = [index for index, name in enumerate(names) if name == "quiesce_pages"]
    assert pages == list(range(pages[0], pages[0] + 2))


def test_one_text_comes_back_as_it_was_and_merging_again_changes_nothing() -> None:
    first, second = _two()
    assert merge_expositions([first]) == first
    merged = merge_expositions([first, second])
    assert merge_expositions([merged]) == merged
    assert merge_expositions([]) == ""


@pytest.mark.parametrize("broken", ["x{", "x 1 2 3 4", "x{a=b} 1", "# TYPE x nonsense\nx 1", "x not-a-number"])
def test_a_broken_text_is_left_out_and_logged(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    good = _two()[0]
    with caplog.at_level(logging.WARNING):
        merged = merge_expositions([broken, good])
    assert merged == good or "no Prometheus text" not in caplog.text
    for line in good.splitlines():
        assert line in merged


def test_the_same_series_twice_is_given_once() -> None:
    text = _two()[0]
    assert merge_expositions([text, text]) == text


def test_a_family_of_another_type_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    merged = merge_expositions(["# TYPE x gauge\nx 1\n", '# TYPE x_total counter\nx_total{a="b"} 1\n'])
    assert "x 1.0" in merged
    assert "x_total" not in merged
    assert "one worker says gauge, another counter" in caplog.text


def test_odd_label_values_survive() -> None:
    telemetry = Telemetry("decode", 'we"ird\\na\nme')
    telemetry.inc("quiesce_aborts_sent")
    text = telemetry.render()
    assert merge_expositions([text]) == text


@given(st.text(max_size=60))
def test_nothing_makes_it_fail(text: str) -> None:
    merge_expositions([text, "# HELP y Y.\n# TYPE y gauge\ny 1.0\n"])
