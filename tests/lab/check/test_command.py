"""`quiesce check`: what it says, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from quiesce.cli.main import main
from quiesce.lab.check.command import command
from quiesce.lab.explorer.worlds import FULL, SMALL
from quiesce.lab.mutants.registry import MUTANTS
from quiesce.lab.scenario.file import retold


def check(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(command, words, catch_exceptions=False)
    return ended.exit_code, ended.stdout


def test_worlds_are_explored_and_counted() -> None:
    code, said = check("--world", "no fault", "--world", "prefill closes its endpoint")
    assert code == 0
    assert "232" in said
    assert "554" in said
    assert "2 worlds" in said
    assert "every state of each is right, and comes to rest" in said


def test_json_has_the_same() -> None:
    code, said = check("--world", "no fault", "--format", "json")
    (world,) = json.loads(said)["worlds"]
    assert code == 0
    assert (world["world"], world["states"], world["transitions"], world["violation"]) == ("no fault", 232, 554, "")
    assert world["memory_bytes"] > 1_000_000


def test_a_mutant_is_shown_and_written(tmp_path: Path) -> None:
    file = tmp_path / "race.txt"
    code, said = check("--mutant", "client abort does not hold", "--jobs", "1", "--write", str(file))
    assert code == 1
    assert "no_wild_write" in said
    assert "  1. submit A\n" in said
    assert "VIOLATION" in said
    recorded, now = retold(file)
    assert recorded == now


def test_a_mutant_in_another_world() -> None:
    code, said = check("--mutant", "client abort does not hold", "--world", "no fault")
    assert code == 0, said


def test_what_is_unknown_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--world", "flat"], ["--mutant", "x"], ["--bounds", "huge"], ["--mutant", "weights do not matter"]):
        assert main(["check", *words]) == 2
        assert capsys.readouterr().err


def test_everything_has_its_name() -> None:
    code, said = check("--list")
    assert code == 0
    assert all(f"  {name}\n" in said for name in FULL)
    assert all(f"  {each.name} (rule" in said for each in MUTANTS if each.world is not None)
    assert set(SMALL) < set(FULL)
