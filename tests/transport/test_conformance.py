"""The shipped backends pass the conformance suite, and backends that break one promise do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.errors import ConfigurationError
from quiesce.transport import registry
from quiesce.transport.conformance import (
    checks,
    closing_checks,
    conformance,
    guard_checks,
    lease_checks,
    pull_checks,
    python_checks,
)
from quiesce.transport.conformance.__main__ import main, show
from quiesce.transport.conformance.candidates import candidate, segments_of, trial_of
from quiesce.transport.conformance.report import CHECKS, Report, Seen, promised

from .installed import skip_unless_here

LIARS: dict[str, checks.Check] = {
    "QUIESCED": checks.an_unknown_end_is_never_called_quiesced,
    "ABORTED": checks.a_write_to_a_closed_target_is_never_called_quiesced_wrongly,
    "TWICE": checks.every_completion_comes_once,
    "EMPTY": checks.landed_means_visible,
    "REVOKED": checks.after_a_fence_no_byte_changes,
    "READING": checks.a_closed_sender_reads_nothing_for_an_unknown_end,
    "FENCED": checks.after_a_fence_no_byte_changes,
    "DEATH": checks.a_dead_writer_s_bytes_end_at_its_fence,
    "SPINNING": checks.idle_costs_nothing,
    "WRAPPED": checks.what_lies_outside_is_refused_whole,
    "BESIDE": guard_checks.what_lies_beside_the_pool_stays_as_it_is,
    "GREEDY": python_checks.python_goes_on_while_pages_are_written,
    "GRASPING": python_checks.python_goes_on_while_pages_are_written,
    "WAITING": python_checks.python_goes_on_while_pages_are_written,
    "UNLIMITED": lease_checks.what_no_lease_permits_is_not_written,
    "AJAR": closing_checks.after_the_receiver_s_close_no_byte_changes,
}


PULL_LIARS: dict[str, checks.Check] = {
    "NEXT_DOOR": pull_checks.what_is_read_comes_where_told_and_nowhere_else,
    "ROUND": pull_checks.a_read_outside_is_refused_whole,
    "HOUSE": pull_checks.what_no_window_lends_is_not_read,
    "STAMPED": pull_checks.a_landed_read_is_there,
    "READ_TWICE": pull_checks.every_read_ends_once,
    "WORDS": pull_checks.after_a_revocation_the_source_may_be_used_again,
    "QUIET": pull_checks.an_unknown_read_is_never_called_quiesced,
    "HANGING": pull_checks.a_killed_lender_hangs_no_reader,
    "REBORN": pull_checks.an_old_read_never_sees_a_later_life,
    "DEAF": pull_checks.a_dead_reader_frees_its_source,
    "OPEN": pull_checks.after_close_nothing_comes,
    "SPINNING": pull_checks.idle_lending_costs_nothing,
    "BESIDE": guard_checks.what_lies_beside_the_reader_s_pool_stays_as_it_is,
    "GRASPING": python_checks.python_goes_on_while_pages_are_read,
    "AJAR": closing_checks.after_the_lender_s_close_nothing_is_read,
}


EXAMPLE = "docs.example_backend:BACKEND"
SEGMENTS = segments_of("shm")
RUNNABLE = [*(name for name in registry.names() if name != "mori"), SEGMENTS]

LOOKS = 5
NEVER, NEVER_S = ("HANGING", "DEAF"), 3.0
"""Liars with whom something never comes, and what is waited for it: of an honest one it comes within a second."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "check"),
    [(name, check) for name in (*RUNNABLE, EXAMPLE) for check in promised(name)],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_the_shipped_backends_and_the_example_keep_their_promises(backend: str, check: checks.Check) -> None:
    skip_unless_here(backend)
    check(backend)


@pytest.mark.slow
@pytest.mark.parametrize("check", promised("tcp"), ids=lambda each: each.__name__)
def test_tcp_keeps_its_promises_over_tls(check: checks.Check, over_tls: str) -> None:
    check(over_tls)


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trial_of("tcp", tmp_path_factory.mktemp("certificates"))


def test_what_has_no_way_to_encrypt_is_no_candidate_over_tls(over_tls: str) -> None:
    assert candidate(over_tls).name == "tcp+tls"
    with pytest.raises(ConfigurationError, match="pages of shm cannot be encrypted"):
        candidate(over_tls.replace("tcp", "shm", 1))


def test_what_lends_no_segments_is_no_candidate_with_them() -> None:
    assert candidate(SEGMENTS).name == SEGMENTS
    with pytest.raises(ConfigurationError, match="tcp lends no segments"):
        candidate(segments_of("tcp"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("liar", "check"),
    [
        *((f"tests.transport.liars:{liar}", check) for liar, check in LIARS.items()),
        *((f"tests.transport.pull_liars:{liar}", check) for liar, check in PULL_LIARS.items()),
    ],
    ids=lambda each: each.rpartition(".")[2] if isinstance(each, str) else each.__name__,
)
def test_a_backend_that_lies_is_found_out(liar: str, check: checks.Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some lies show only when the kernel's queues are full at the right moment: a check looks a few times."""
    if liar.endswith(NEVER):
        monkeypatch.setattr(pull_checks, "SOON_S", NEVER_S)
    assert any(is_found_out(liar, check) for _ in range(LOOKS))


def test_there_is_a_liar_for_every_check_of_pull() -> None:
    assert tuple(PULL_LIARS.values()) == checks.PROVES["pull"]


def is_found_out(liar: str, check: checks.Check) -> bool:
    try:
        check(liar)
    except checks.Broken:
        return True
    return False


def test_the_example_is_short() -> None:
    page = Path(__file__).parents[2] / "docs" / "example_backend.py"
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 60


def test_who_claims_what_was_not_seen_does_not_pass() -> None:
    seen = tuple(Seen(check.__name__, check not in checks.PROVES["fence"], "", 0.0) for check in CHECKS)
    report = Report("x", seen, frozenset({"drain_ack"}), frozenset({"drain_ack", "fence", "authenticated"}))
    assert report.unproved == {"fence"}
    assert not report.passed
    assert Report("x", seen, report.derived, frozenset({"drain_ack"})).passed


def test_a_check_of_what_nobody_claims_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    needed = {check.__name__ for check in promised("mooncake")}
    for name in ("a_dead_writer_s_bytes_end_at_its_fence", "idle_costs_nothing"):
        show(Seen(name, False, "seen", 1.0), needed)
    assert capsys.readouterr().out.splitlines() == [
        "  not claimed a dead writer's bytes end at its fence: seen (1.0 s)",
        "  FAIL        idle costs nothing: seen (1.0 s)",
    ]


@pytest.mark.parametrize("name", ["carrier-pigeon", "tests.transport.liars:NOBODY", "no.such.module:X", "json:loads"])
def test_a_backend_that_is_not_there_is_no_failure_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError):
        conformance(name)
    assert main([name]) == 2
    assert name in capsys.readouterr().err
