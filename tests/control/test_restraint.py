"""A log says what is new, and not what one peer does again and again."""

from __future__ import annotations

from quiesce.control.restraint import BURST, EVERY_S, MOST_SUBJECTS, NEWCOMER_EVERY_S, NEWCOMERS, Restraint


def test_a_few_lines_are_said_at_once_and_then_one_now_and_then() -> None:
    now_s = 0.0
    held = Restraint(lambda: now_s)
    assert [held.unsaid("p") for _ in range(BURST + 3)] == [0] * BURST + [None] * 3
    assert held.unsaid("another") == 0
    now_s = EVERY_S
    assert [held.unsaid("p"), held.unsaid("p")] == [3, None]
    now_s = 100 * EVERY_S
    assert [held.unsaid("p") for _ in range(BURST + 1)] == [1, *[0] * (BURST - 1), None]


def test_a_new_name_each_time_is_no_way_around_and_silences_nobody_who_is_known() -> None:
    now_s = 0.0
    held = Restraint(lambda: now_s)
    assert held.unsaid("known") == 0
    said = [held.unsaid(f"p{n}") for n in range(2 * MOST_SUBJECTS)]
    assert sum(each is not None for each in said) == NEWCOMERS - 1
    assert held.unsaid("known") == 0
    now_s = NEWCOMER_EVERY_S
    assert held.unsaid("late") == 2 * MOST_SUBJECTS - (NEWCOMERS - 1)
    assert held.unsaid("later") is None


def test_what_is_remembered_is_bounded() -> None:
    now_s = 0.0
    held = Restraint(lambda: now_s)
    for number in range(2 * MOST_SUBJECTS):
        now_s += NEWCOMER_EVERY_S
        held.unsaid(f"p{number}")
    assert len(held._subjects) == MOST_SUBJECTS
