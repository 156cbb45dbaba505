"""What `quiesce lab run FILE --real` says of a course."""

from __future__ import annotations

from quiesce.lab.client import Answer
from quiesce.lab.scenario.real.play import Told, told_lines


def test_an_answer_that_nobody_reads_is_like_no_other() -> None:
    assert told_lines(Told(Answer(text="Rain"), None, shared=False, leaks=False)) == ["nobody reads an answer"]


def test_an_answer_is_held_against_that_of_who_is_alone() -> None:
    told = Told(Answer(text="Rain"), Answer(text="Maria"), shared=True, leaks=True)
    assert told_lines(told) == ["'Maria'", "NOT as when asked alone, in pages of somebody else"]
    told = Told(Answer(text="Rain"), Answer(text="Rain"), shared=False, leaks=False)
    assert told_lines(told) == ["'Rain'", "as when asked alone"]
