"""Every shipped scenario comes out as recorded, and every mutant that a world can show has one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from quiesce.cli.main import main
from quiesce.errors import UsageError
from quiesce.lab.mutants.registry import MUTANTS
from quiesce.lab.run import command
from quiesce.lab.scenario.docs import page
from quiesce.lab.scenario.file import read, retold
from quiesce.lab.scenario.format import difference, printed
from quiesce.lab.scenario.shipped import found, shipped

PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_comes_out_as_recorded(path: Path) -> None:
    recorded, now = retold(path)
    assert difference(recorded, now, path.name) == ""
    assert printed(recorded) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_ends_in_what_it_shows(path: Path) -> None:
    """Without the rule something is broken at the end; with it nothing ever is."""
    scenario = read(path)
    told = [line for step in scenario.course.steps for line in step.outcome if " broken: " in line]
    kept = scenario.kept.steps if scenario.kept is not None else scenario.course.steps
    assert bool(told) == (scenario.kept is not None)
    assert [line for step in kept for line in step.outcome if " broken: " in line] == []


def test_every_mutant_that_a_world_shows_has_a_file() -> None:
    left_out = {read(path).without for path in shipped()}
    assert [mutant.name for mutant in MUTANTS if mutant.world is not None and mutant.name not in left_out] == []


def test_the_page_lists_them() -> None:
    """Else run `make docs`."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


# ---------------------------------------------------------------- the command


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "race.txt"
    path.write_text(found("no-tombstone").read_text(encoding="utf-8"), encoding="utf-8")
    return path


def test_run_says_that_all_is_as_recorded(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", str(copy), "two-prefills"]) == 0
    said = capsys.readouterr().out
    assert "race.txt: 8 steps, 9 with the rule in place, all as recorded\n" in said
    assert "two-prefills.txt: " in said


def test_run_shows_a_difference_and_rewrites_it(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = copy.read_text(encoding="utf-8")
    copy.write_text(text.replace("page 0: held for A", "page 0: free"), encoding="utf-8")
    assert main(["lab", "run", str(copy)]) == 1
    said = capsys.readouterr().out
    assert "-    page 0: free\n+    page 0: held for A\n" in said
    assert said.endswith("not as recorded\n")
    assert main(["lab", "run", str(copy), "--rewrite"]) == 0
    assert copy.read_text(encoding="utf-8") == text


def test_run_refuses_what_it_cannot_read(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "no-such-scenario"]) == 2
    assert "There is no file no-such-scenario" in capsys.readouterr().err
    text = copy.read_text(encoding="utf-8")
    copy.write_text(text.replace("without: no tomb", "without: notomb"), encoding="utf-8")
    assert main(["lab", "run", str(copy)]) == 2
    assert (
        "no mutant is called 'notombstone after the ack'. Near: no tombstone after the ack" in capsys.readouterr().err
    )
    copy.write_text(text.replace("> submit A", "> submit Z"), encoding="utf-8")
    assert main(["lab", "run", str(copy)]) == 2
    assert "race.txt:9: 'submit Z' cannot happen here" in capsys.readouterr().err
    copy.write_text("simulation\n", encoding="utf-8")
    assert main(["lab", "run", str(copy)]) == 2


def test_run_without_a_file_lists_them() -> None:
    listed = CliRunner().invoke(command, []).output.splitlines()
    assert len(listed) == len(shipped())
    assert "four-step-race " in "".join(listed)


def test_a_name_that_is_nothing_is_refused() -> None:
    with pytest.raises(UsageError):
        found("")
