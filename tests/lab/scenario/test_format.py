"""Scenario files: what is printed is what is parsed, and what cannot be read is said by its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.errors import UsageError
from quiesce.lab.explorer.config import RETRY, TWIN, A, B, Config, config
from quiesce.lab.scenario.format import Course, Prose, Scenario, Step, parse, printed

LETTERS = st.characters(codec="utf-8", exclude_categories=("C", "Z"))
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=6).map(" ".join)
TOLD = WORDS.filter(lambda words: not words.startswith((">", "===")))
PROSE = st.builds(Prose, st.lists(TOLD, min_size=1, max_size=3).map(tuple))
STEPS = st.builds(Step, WORDS, st.lists(WORDS, max_size=3).map(tuple))


ITEMS = st.lists(PROSE | STEPS, max_size=8).map(tuple)
COURSES = st.builds(Course, ITEMS)
CONFIGS = st.builds(
    config,
    requests=st.sampled_from([(A,), (A, B), (A, TWIN, RETRY)]),
    arrivals=st.sampled_from([None, (), ((0, A),)]),
    prefills=st.integers(1, 3),
    pages=st.integers(1, 4),
    fence=st.booleans(),
    covered=st.booleans(),
    abort=st.integers(1, 3),
    crash_p=st.integers(0, 2),
)
SCENARIOS = st.builds(
    Scenario,
    title=WORDS,
    config=CONFIGS,
    course=COURSES,
    kept=st.none() | st.builds(Course, ITEMS, st.integers(0, 9)),
    rule=st.just("") | WORDS,
    without=st.just("") | WORDS,
)


@given(SCENARIOS)
def test_what_is_printed_is_what_is_parsed(scenario: Scenario) -> None:
    assert parse(printed(scenario)) == scenario


HEAD = "scenario: T\nrequests: A in room 7 asks a\n"


def test_a_step_knows_its_line() -> None:
    assert parse(f"{HEAD}\n> submit A\n    sent\n> heal\n").course.steps[1].line == 6


def test_layout_does_not_matter() -> None:
    loose = parse(f"{HEAD}\n\nOnce.\n\n\n> submit A\n    sent: X   \n\n\n")
    assert loose.course.items == (Prose(("Once.",)), Step("submit A", ("sent: X",)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.txt:1"),
        ("> submit A\n", "f.txt:1"),
        ("scenario: T\nrequests: A\n", "f.txt:2"),
        ("scenario: T\npages: many\n", "f.txt:2: pages is a number"),
        ("scenario: T\nfence: 3\n", "f.txt:2: fence is yes or no"),
        ("scenario: T\nwhere: here\n", "f.txt:2: nothing is called 'where'"),
        ("scenario: T\npages\n", "f.txt:2"),
        (f"{HEAD}arrivals: B at prefill 0\n", "f.txt:3: there is no request B"),
        (f"{HEAD}\n    sent: X\n", "f.txt:4: an indented line"),
        (f"{HEAD}\n=== with the rules\n", "f.txt:4: expected"),
        (f"{HEAD}\n=== with the rule\n\n=== with the rule\n", "f.txt:6: a scenario has two"),
    ],
)
def test_what_cannot_be_read_is_said_by_its_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text, "f.txt")
    assert str(refused.value).startswith(said)


def test_a_world_as_usual_says_little() -> None:
    assert printed(Scenario("T", Config(requests=(A,)), Course(()))) == "scenario: T\nrequests: A in room 7 asks a\n"
