"""docs/conformance.json says what was seen of the backends as they are declared, and the page is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quiesce.protocol.hello import OVER_TLS
from quiesce.transport import registry
from quiesce.transport.conformance import __main__ as program
from quiesce.transport.conformance.candidates import candidate, segments_of
from quiesce.transport.conformance.checks import ALWAYS, PROVES
from quiesce.transport.conformance.record import Entry, decode, encode, page
from quiesce.transport.conformance.report import CHECKS, Report, Seen, claimed

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = decode((DOCS / "conformance.json").read_bytes())


def ways() -> Iterator[str]:
    for name in registry.names():
        if name != "mori":
            yield name
        if registry.backend(name).segmented:
            yield segments_of(name)
        if registry.backend(name).secured:
            yield registry.secured_name(name)


def test_the_page_is_in_step_with_the_record() -> None:
    assert page(RECORDED) == (DOCS / "conformance.md").read_text(encoding="utf-8")
    assert encode(RECORDED) == (DOCS / "conformance.json").read_bytes()


def test_every_backend_that_can_run_is_recorded_with_every_check() -> None:
    assert [entry.backend for entry in RECORDED] == list(ways())
    for entry in RECORDED:
        assert {each.check for each in entry.seen} == {check.__name__ for check in CHECKS}
        held = {each.check for each in entry.seen if each.holds}
        assert held >= {check.__name__ for check in ALWAYS}


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: entry.backend)
def test_a_backend_declares_what_was_seen_of_it_and_no_more(entry: Entry) -> None:
    backend = candidate(entry.backend.removesuffix(OVER_TLS))
    assert claimed(backend) & PROVES.keys() == set(entry.capabilities)
    assert (entry.library, entry.version) == (backend.library, backend.verified)


def test_the_later_life_of_a_library_was_where_the_earlier_one_had_been() -> None:
    """There an old write by address would find it: elsewhere the check would hold for nothing."""
    told = {each.backend: each.find("an_old_write_never_lands_in_a_later_life") for each in RECORDED}
    for name in ("tcp", "mooncake", "nixl"):
        seen = told[name]
        assert seen is not None
        assert seen.detail == "at the same address"


def test_the_program_writes_the_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = (Seen("idle_costs_nothing", False, "it spins", 1.0),)
    report = Report("shm", seen, frozenset({"drain_ack"}), frozenset({"drain_ack"}))
    monkeypatch.setattr(program, "conformance", lambda name, told: report)
    assert program.main(["--record", str(tmp_path / "seen.json"), "shm"]) == 1
    (entry,) = decode((tmp_path / "seen.json").read_bytes())
    assert (entry.backend, entry.version, entry.capabilities) == ("shm", "", ("drain_ack",))
    assert "| idle costs nothing | **FAILS** |" in page((entry,))
    assert "| many small pages | not run |" in page((entry,))
    assert "passes" not in capsys.readouterr().out
