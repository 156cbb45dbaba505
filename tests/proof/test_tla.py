"""The TLA+ model has every action and every invariant of the proof, by name; TLC itself runs by `make tla`."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from proof.push.model import PUSH
from proof.push.rules import PushRules
from proof.push.state import FUNCTIONS
from proof.tla import __main__ as program
from proof.tla.checker import NoCheckerError, Verdict, read
from proof.tla.configurations import FOLDER, LARGER, MISSING, WHOLE, Configuration

MODEL = (FOLDER / "Push.tla").read_text(encoding="utf-8")
DEFINED = set(re.findall(r"(?m)^(\w+)(?:\([\w, ]*\))? ==", MODEL))
STATE = set(re.findall(r"(\w+) \|->", MODEL[MODEL.index("Init ==") : MODEL.index("reserve(a)")]))
WORLDS = (*WHOLE, *LARGER, *MISSING)


def test_every_action_and_invariant_is_there() -> None:
    actions = {each.__name__ for each in (*PUSH.actions, *PUSH.extra.values())}
    assert (actions | set(PUSH.invariants)) - DEFINED == set()
    steps = MODEL[MODEL.index("AtDecode ==") : MODEL.index("Next ==")]
    assert actions - set(re.findall(r"(\w+)\(", steps)) == set()


def test_the_state_and_what_never_changes_are_the_same() -> None:
    assert set(PUSH.any_state.declared()) == STATE
    constants = MODEL[: MODEL.index("VARIABLE s")]
    assert [each.name() for each in FUNCTIONS if not re.search(rf"\b{each.name()}\b", constants)] == []


def test_every_protection_can_be_left_out() -> None:
    used = set(re.findall(r'(?:With|If)\("(\w+)"', MODEL))
    assert used == {each.name for each in fields(PushRules)}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.cfg")), ids=lambda path: path.name)
def test_tlc_is_asked_for_every_invariant(path: Path) -> None:
    asked = path.read_text(encoding="utf-8").partition("INVARIANTS")[2].split()
    assert set(asked) == set(PUSH.invariants)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_world_is_a_file_with_other_sizes(world: Configuration) -> None:
    text = world.text()
    for name, size in world.sizes.items():
        assert f"\n  {name} = {size}\n" in text
    assert text.count("LeftOut = {}") == (0 if world.left_out else 1)
    assert set(world.left_out) <= {each.name for each in fields(PushRules)}
    assert not world.violates or text.endswith(f"INVARIANTS\n  {world.violates}\n")


def test_what_tlc_says_is_read() -> None:
    whole = read(
        "241047 states generated, 23192 distinct states found, 0 states left on queue.\n"
        "The depth of the complete state graph search is 25.\n",
        2.0,
    )
    assert (whole.states, whole.transitions, whole.depth, whole.violated) == (23192, 241047, 25, "")
    failed = read("Error: Invariant once is violated.\nState 1: <Initial predicate>\nState 2: <Next line>\n", 1.0)
    assert (failed.violated, failed.steps, failed.states) == ("once", 1, 0)


def test_without_java_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def no_java() -> str:
        raise NoCheckerError("there is no java here")

    monkeypatch.setattr(program, "java", no_java)
    assert program.main([]) == 0
    assert "TLC was not run: there is no java here" in capsys.readouterr().out


def test_a_world_that_should_fail_and_does_not_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    fine = Verdict("", 0, 5, 9, 3, 1.0, "")
    broken = Verdict("once", 4, 0, 0, 0, 1.0, "")
    safe, unsafe = Configuration("safe"), Configuration("unsafe", left_out=("released_once",), violates="once")
    assert [program.show(safe, fine), program.show(unsafe, broken)] == [0, 0]
    assert [program.show(safe, broken), program.show(unsafe, fine), program.show(safe, None)] == [1, 1, 1]
    assert "once is violated in 4 steps" in capsys.readouterr().out
