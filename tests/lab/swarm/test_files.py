"""Failing runs: made small, written down, read again, replayed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from quiesce.cli.main import main
from quiesce.errors import UsageError
from quiesce.lab.swarm import file
from quiesce.lab.swarm.run import Plan, plan_of, run
from quiesce.lab.swarm.shrink import Shrinker, ddmin
from quiesce.lab.swarm.without import mutant
from quiesce.lab.swarm.workload import from_trace

MUTANT = "ack without marking the attempt aborted"


def failing(seconds: float = 12.0) -> Plan:
    """A plan under which `MUTANT` is seen."""
    for seed in range(20):
        plan = plan_of(seed, seconds)
        with mutant(MUTANT) as without:
            if run(plan, without=without).violation == "no_early_ack":
                return plan
    raise AssertionError


def test_a_failure_is_made_small_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = failing()
    with mutant(MUTANT) as without:
        found = run(plan, without=without)
        small = Shrinker(plan, found, without, most_runs=60).shrink()
        outcome = run(small, without=without, tells=True)
    assert outcome.violation == found.violation
    assert len(small.asks) <= min(4, len(plan.asks))
    path = tmp_path / "found.txt"
    path.write_text(file.written(small, outcome, MUTANT, "Made smaller."))
    assert file.read(path).plan == small
    for command in (["lab", "swarm", "--replay", str(path)], ["lab", "run", str(path)]):
        assert main(command) == 0
        assert "as recorded: no_early_ack broken" in capsys.readouterr().out
    path.write_text(path.read_text().replace(f"without: {MUTANT}\n", ""))
    assert main(["lab", "run", str(path)]) == 1
    assert "nothing is broken any more" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(0, 60, 9))
def test_a_plan_is_read_as_it_was_written(seed: int, tmp_path: Path) -> None:
    plan = plan_of(seed, 30.0)
    outcome = run(msgspec.structs.replace(plan, asks=(), faults=()))
    for told in (None, frozenset({"lose DONE 1.1 from decode 0 to prefill 0 the 1st time"}), frozenset[str]()):
        given = msgspec.structs.replace(plan, told=told)
        path = tmp_path / "plan.txt"
        path.write_text(file.written(given, msgspec.structs.replace(outcome, violation="x", detail="x"), "", "-"))
        assert file.read(path).plan == given


@pytest.mark.parametrize(
    "text", ["", "scenario: a", "swarm: x\n", "swarm: x\n\nrequests:\n    request\n", "swarm: x\nviolation: y\n\n"]
)
def test_what_is_no_such_file_is_a_usage_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "nonsense.txt"
    path.write_text(text)
    with pytest.raises(UsageError):
        file.read(path)


def test_ddmin_leaves_nothing_out_that_is_needed() -> None:
    assert ddmin(list(range(100)), lambda some: {3, 50, 97} <= set(some)) == [3, 50, 97]
    assert ddmin([1, 2, 3], lambda some: True) == []


def test_a_trace_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    line = '{"timestamp": %d, "input_length": %d, "output_length": 40, "hash_ids": [0, 1, 2, %d]}'
    path.write_text("\n".join(line % (at * 500, 1500 + at, at + 3) for at in range(20)))
    plan = plan_of(3, 8.0, path)
    assert 10 <= len(plan.asks) <= 20
    assert max(ask.prompt for ask in plan.asks) <= 2 * plan.parameters.longest_prompt_tokens
    assert not run(plan).violation
    path.write_text("nonsense")
    with pytest.raises(UsageError, match="is no trace"):
        from_trace(path, plan.parameters, 1.0)
