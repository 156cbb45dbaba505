"""Words of commands, as a shell would make them, without one."""

from __future__ import annotations

import pytest

from quiesce.doctor.fleet import line_of
from quiesce.doctor.shell import commands


def words(text: str, **variables: str) -> list[list[str]]:
    return [[str(word) for word in command] for command in commands(text, variables.get)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a; b && c | d &", [["a"], ["b"], ["c"], ["d"]]),
        ("a # b\nc#d", [["a"], ["c#d"]]),
        ("a > out 2>&1 b", [["a", "2", "b"]]),
        ("cat <<EOF\nnot a command\nEOF\na", [["cat"], ["a"]]),
        ("cat <<-'END'\nx\n  END\na", [["cat"], ["a"]]),
        ("a ''", [["a", ""]]),
        ("a $N ${N} ${M:-d} ${M-e} $M \"$N\" '$N'", [["a", "1", "1", "d", "e", "$M", "1", "$N"]]),
        ("a $(b $(c) d) `e` x", [["a", "$(...)", "$(...)", "x"]]),
        ("{ a; }", [["a"]]),
        ("(a)", [["a"]]),
        ("a {1,2}", [["a", "{1,2}"]]),
        ("a x{1,2}", [["a", "x{1,2}"]]),
        ("a $S", [["a", "x", "y", "z"]]),
        ('a "$S"', [["a", "x y z"]]),
        ("A=$S b", [["A=x y z", "b"]]),
        ("a -$S-", [["a", "-x", "y", "z-"]]),
        ('a "${L[@]}" ${L[*]} "$L"', [["a", "x", "y z", "x", "y z", "x\x1fy z"]]),
        ("A=(x 'y z') b", [["A=x\x1fy z", "b"]]),
        ("A=()", [["A="]]),
    ],
)
def test_words(text: str, expected: list[list[str]]) -> None:
    assert words(text, N="1", S="x y z", L="x\x1fy z") == expected


def test_words_know_their_line() -> None:
    text = "a \\\n  b 'c\nd' e\n\nf"
    found = [(str(word), line_of(word)) for command in commands(text, lambda _name: None) for word in command]
    assert found == [("a", 1), ("b", 2), ("c\nd", 2), ("e", 3), ("f", 5)]
