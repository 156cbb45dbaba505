"""Real processes refuse what they cannot tell, with the reason, before anything starts."""

from __future__ import annotations

import pytest

from quiesce.cli.main import main
from quiesce.lab.scenario.file import read
from quiesce.lab.scenario.real.refusal import refusals
from quiesce.lab.scenario.shipped import found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("two-prefills", "a worker has one rank"),
        ("one-ack-slot", "a worker has one rank"),
        ("writers-death", "its plain stores end with it"),
        ("lost-stream", "a stream between two workers is not broken"),
        ("two-live-requests-in-one-room", "rooms are minted by the router"),
        ("decode-restarts-at-the-same-address", "memory is new in every life"),
        ("done-of-an-older-attempt", "decode always looks at page tags"),
        ("cached-before-verified", "prefixes are not cached"),
        ("fenced-said-once", "fenced by the writer's death only"),
    ],
)
def test_what_cannot_be_told_is_refused(name: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", name, "--real"]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("name", ["four-step-race", "clock-frees", "stub-hand-off", "unsafe-release-on-timeout"])
def test_what_can_be_told_is_not(name: str) -> None:
    assert refusals(read(found(name))) == []


def test_recording_is_not_done_by_real_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "four-step-race", "--real", "--rewrite"]) == 2
    assert "leave out --real" in capsys.readouterr().err
