"""`quiesce lab swarm`: what it says and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiesce.cli.main import main
from quiesce.lab.swarm.marks import MARKS

MUTANT = "ack without marking the attempt aborted"


def test_a_run_says_what_it_drew_and_how_to_run_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "swarm", "--seed", "5", "--seconds", "3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("drawn: seed=5 prefills=")
    never = next(place for place, line in enumerate(said) if line.startswith("NEVER EXERCISED"))
    count = int(said[never].split()[2].strip("("))
    assert {line.strip() for line in said[never + 1 : never + 1 + count]} <= set(MARKS)
    assert any(line.startswith("not in any run: the executors") for line in said)
    assert said[-1] == "again: quiesce lab swarm --seed 5 --seconds 3"


def test_how_pages_come_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lab", "swarm", "--seed", "2", "--seconds", "2", "--transfer", "push", "--landing", "staged"]
    assert main(words) == 0
    said = capsys.readouterr().out.splitlines()
    assert " transfer=push landing=staged " in said[0]
    assert said[-1] == f"again: quiesce {' '.join(words)}"
    assert main(["lab", "swarm", "--transfer", "pull", "--landing", "staged"]) == 2
    assert "nobody but decode writes to its memory" in capsys.readouterr().err


def test_a_violation_is_an_exit_code_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("quiesce.lab.swarm.shrink.MOST_RUNS", 3)
    path = tmp_path / "found.txt"
    words = ["--seed", "0", "--runs", "12", "--seconds", "12", "--mutant", MUTANT, "--write", str(path)]
    assert main(["lab", "swarm", *words]) == 0  # a mutant is there to be seen
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("VIOLATION, seed ") for line in said)
    assert said[-1] == f"small: quiesce lab swarm --replay {path}"
    assert path.read_text().startswith("swarm: no_early_ack is broken, seed ")


def test_a_mutant_that_is_not_seen_is_said_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "swarm", "--seed", "5", "--seconds", "1", "--mutant", MUTANT]) == 1
    assert "the mutant was not seen; try --runs 30" in capsys.readouterr().out.splitlines()


def test_json_holds_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "swarm", "--runs", "2", "--jobs", "2", "--seconds", "2", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["violations"], len(told["parameters"])) == (2, [], 2)
    assert told["events"] > 0
    assert told["excluded"]


def test_no_such_mutant_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "swarm", "--mutant", "nonsense"]) == 2
    assert "There is no mutant 'nonsense'" in capsys.readouterr().err
    assert main(["lab", "swarm", "--mutants"]) == 0
    assert MUTANT in capsys.readouterr().out.splitlines()
