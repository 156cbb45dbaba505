"""What each machine does with every input in every state is written down, and is what it does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quiesce.protocol import receiver_rules, sender_rules
from quiesce.protocol.attempt import Phase
from quiesce.protocol.record import RecordPhase
from tests.protocol.tables import HERE, LENDER_INPUTS, PULLER_INPUTS, RECEIVER_INPUTS, SENDER_INPUTS, TABLES


@pytest.fixture(autouse=True)
def _finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_rules, "MAX_RESEND_ROUND", 0)
    monkeypatch.setattr(sender_rules, "MAX_RESEND_ROUND", 0)


@pytest.mark.parametrize(("name", "make"), TABLES.items())
def test_table_is_what_the_machine_does(name: str, make: Callable[[], str]) -> None:
    """After a wanted change: python -m tests.protocol.tables, and read the difference."""
    assert make() == (HERE / name).read_text()


def _pairs(name: str) -> set[tuple[str, str]]:
    rows = (line.split(" -> ")[0] for line in (HERE / name).read_text().splitlines())
    return {
        (where.split(",")[0].removesuffix(" and lent"), label) for where, label in (row.split(" | ") for row in rows)
    }


def test_every_receiver_pair_is_in_the_table() -> None:
    """`reserved` lasts only without grants and `verified` never; both have tests of their own."""
    phases = {phase.value for phase in Phase} - {Phase.RESERVED, Phase.VERIFIED} | {"over"}
    wanted = {(phase, label) for phase in phases for label in RECEIVER_INPUTS if label != "reserve"}
    assert wanted <= _pairs("receiver_table.txt")


def test_every_sender_pair_is_in_the_table() -> None:
    once = {"arrived", "chunk"}
    phases = {phase.value for phase in RecordPhase} - {RecordPhase.OFFERED}
    assert {(phase, label) for phase in phases for label in SENDER_INPUTS if label not in once} <= _pairs(
        "sender_table.txt"
    )


def test_every_puller_pair_is_in_the_table() -> None:
    phases = {phase.value for phase in Phase} - {Phase.RESERVED, Phase.VERIFIED} | {"over"}
    wanted = {(phase, label) for phase in phases for label in PULLER_INPUTS if label != "reserve"}
    assert wanted <= _pairs("puller_table.txt")


def test_every_lender_pair_is_in_the_table() -> None:
    """A lender has no write: it neither sends nor drains, and is never poisoned."""
    phases = {each.value for each in RecordPhase}
    phases -= {RecordPhase.SENDING, RecordPhase.DRAINED, RecordPhase.POISONED}
    wanted = {(phase, label) for phase in phases for label in LENDER_INPUTS if label != "arrived"}
    assert wanted <= _pairs("lender_table.txt")
