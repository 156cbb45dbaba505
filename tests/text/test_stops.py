from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.text.stops import StopMatcher

AB = st.text("ab", max_size=30)


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    matcher, shown = StopMatcher(stops), ""
    for piece in pieces:
        emitted, stopped = matcher.push(piece)
        shown += emitted
        if stopped:
            return shown, True
    return shown + matcher.flush(), False


def by_the_book(stops: list[str], text: str) -> tuple[str, bool]:
    """Read character by character; the first position at which a stop string ends decides."""
    for end in range(1, len(text) + 1):
        matched = [stop for stop in stops if text[:end].endswith(stop)]
        if matched:
            return text[: end - max(map(len, matched))], True
    return text, False


@given(st.lists(st.text("ab", min_size=1, max_size=5), max_size=4), st.lists(AB, max_size=8))
def test_equals_reading_character_by_character(stops: list[str], pieces: list[str]) -> None:
    """The answer does not depend on how the text was split."""
    assert run(stops, pieces) == by_the_book(stops, "".join(pieces))


@given(st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4), AB)
def test_shows_all_that_cannot_become_a_stop_string(stops: list[str], text: str) -> None:
    """What is held back is the start of some stop string, and no more."""
    matcher = StopMatcher(stops)
    shown, stopped = matcher.push(text)
    held = text[len(shown) :]
    assert stopped or not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        (["END"], ["hello E", "N", "D more"], ("hello ", True)),
        (["END"], ["hello E", "N", "x"], ("hello ENx", False)),
        (["a"], ["a"], ("", True)),
        (["abcd", "bc"], ["ab", "cd"], ("a", True)),
        (["😀"], ["hi 😀"], ("hi ", True)),
        ([], ["x", "y"], ("xy", False)),
    ],
)
def test_examples(stops: list[str], pieces: list[str], expected: tuple[str, bool]) -> None:
    assert run(stops, pieces) == expected


def test_nothing_is_shown_after_the_stop() -> None:
    matcher = StopMatcher(["x"])
    assert matcher.push("ax") == ("a", True)
    assert matcher.push("more") == ("", True)
    assert matcher.flush() == ""
