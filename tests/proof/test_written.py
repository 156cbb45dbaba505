"""The proof is written to be read, its page says what it says, and `make proof` fails when anything is amiss."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from proof.logic import Step
from proof.model import Model
from proof.models import MODELS
from proof.mutants import MutantVerdict
from proof.push.model import PUSH
from proof.workers import Kind, Piece, Workers, pieces, work

from proof import __main__ as program
from proof import claim, report

FOLDER = Path(claim.__file__).parent
MOST_LINES_OF_A_FILE = 400


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_every_action_and_invariant_says_why(model: Model) -> None:
    everything = [*model.actions, *model.extra.values(), *model.safety, *model.supporting]
    assert [each.__name__ for each in everything if not each.__doc__] == []


def test_files_are_short_and_say_what_they_are() -> None:
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MOST_LINES_OF_A_FILE, path
        assert ast.get_docstring(ast.parse(text)), path


def test_the_page_has_the_current_table() -> None:
    page = claim.PAGE.read_text(encoding="utf-8")
    assert claim.written(page) == page, "run `python -m proof.claim`"


class Told(Workers):
    """Verdicts without a process: the model's own, or what a test wants to see."""

    def __init__(self, *, wrong: Kind | None = None) -> None:
        self._wrong = wrong

    def verdicts(self, of: list[Piece]) -> Iterator[tuple[Piece, object]]:
        for piece in of:
            yield piece, self._verdict(piece)

    def _verdict(self, piece: Piece) -> object:
        if piece.kind is not self._wrong:
            return work(piece)
        return MutantVerdict(broken=True, harm=None, spared=True) if piece.kind is Kind.MUTANT else None

    def __exit__(self, *_: object) -> None:
        pass


def test_a_failed_obligation_is_counted_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    staged = MODELS["staged"].with_rules({"pool_has_one_owner": False})
    MODELS["staged"], kept = staged, MODELS["staged"]
    try:
        assert report.show_proof(Told(), staged, report.Options()) == 1
    finally:
        MODELS["staged"] = kept
    assert "FAILS reserve / no_alias" in capsys.readouterr().out


def test_a_story_that_cannot_happen_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.show_stories(Told(wrong=Kind.STORY), MODELS["staged"], report.Options()) == 1
    assert "IMPOSSIBLE reserve" in capsys.readouterr().out


def test_a_mutant_that_survives_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    count = sum(len(model.mutants) for model in MODELS.values())
    assert report.show_mutants(Told(wrong=Kind.MUTANT), report.Options()) == count
    assert f"0 of {count} killed" in capsys.readouterr().out


def test_the_exit_code_says_whether_everything_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "MODELS", {"staged": MODELS["staged"]})
    monkeypatch.setattr(report, "MODELS", {"staged": MODELS["staged"]})
    monkeypatch.setattr(program, "Workers", lambda _: Told())
    assert program.main(["--runs", "--each"]) == 0
    told = capsys.readouterr().out
    assert "64 of 64 obligations proved" in told
    assert "7 of 7 killed" in told
    assert "everything holds" in told
    monkeypatch.setattr(program, "Workers", lambda _: Told(wrong=Kind.MUTANT))
    assert program.main([]) == 1
    assert "7 THINGS FAIL" in capsys.readouterr().out


def test_processes_share_the_work() -> None:
    with Workers(2) as workers:
        verdicts = dict(workers.verdicts(pieces(Kind.STORY, "staged")))
    assert all(verdicts.values())
    assert len(verdicts) == len(MODELS["staged"].stories)


def test_a_step_is_a_step() -> None:
    taken = PUSH.possible["send_ack"](PUSH.any_state, PUSH.rules)
    assert isinstance(taken, Step)
    assert [change.relation for change in taken.changes] == ["said_ack"]
