"""Lines about a peer: few of each level, and those that nobody sees silence none."""

from __future__ import annotations

import logging

import pytest

from quiesce.control.restraint import BURST
from quiesce.worker.peer_lines import PeerLines


@pytest.mark.parametrize("shown", [logging.INFO, logging.WARNING])
def test_what_is_said_at_one_level_takes_nothing_from_another(shown: int, caplog: pytest.LogCaptureFixture) -> None:
    lines, log = PeerLines(), logging.getLogger("peers")
    caplog.set_level(shown, "peers")
    for _ in range(2 * BURST):
        lines.say(log, logging.INFO, "joined", "prefill-0")
    lines.say(log, logging.WARNING, "it does not read", "prefill-0")
    told = [record.getMessage() for record in caplog.records]
    assert told == ["joined"] * (BURST if shown == logging.INFO else 0) + ["it does not read"]
