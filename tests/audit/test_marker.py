"""Markers: what is found, what is not, and how often by chance."""

from __future__ import annotations

import random

import pytest

from quiesce.audit.marker import (
    CONSONANTS,
    LENGTH,
    SYLLABLES,
    VOWELS,
    Marker,
    Search,
    false_positive_bound,
    mint,
    run_for,
)

from .fake_openai import WORDS


@pytest.fixture
def markers() -> list[Marker]:
    draw = random.Random(5)
    return [mint(number, draw) for number in range(20)]


def test_a_whole_marker_is_found_however_it_is_written(markers: list[Marker]) -> None:
    search = Search(markers, 6)
    for written in (markers[3].phrase, markers[3].letters.upper(), "-".join(markers[3].letters), markers[3].letters):
        (hit,) = search.find(f"It is {written}, I think.")
        assert (hit.marker, hit.first, hit.count, hit.is_whole) == (3, 0, LENGTH, True)


def test_a_part_is_found_from_the_run_on_and_only_its_own_syllables_are_told(markers: list[Marker]) -> None:
    search, letters = Search(markers, 6), markers[8].letters
    (hit,) = search.find(f"and her name was {letters[4:16]}, they said")
    assert (hit.marker, hit.first, hit.count, hit.excerpt) == (8, 2, 6, letters[4:16])
    assert search.find(letters[4:14]) == ()


def test_an_answer_may_show_its_own_markers(markers: list[Marker]) -> None:
    search = Search(markers, 6)
    assert search.find(markers[1].phrase, own=[1]) == ()
    assert [hit.marker for hit in search.find(markers[1].phrase + markers[2].phrase, own=[1])] == [2]


def test_a_forgotten_marker_is_not_found(markers: list[Marker]) -> None:
    search = Search(markers, 6)
    search.remove(4)
    assert (len(search), search.find(markers[4].phrase)) == (19, ())


def test_the_run_is_the_shortest_that_keeps_the_bound() -> None:
    run = run_for(100_000, 200, 1e-4)
    assert false_positive_bound(100_000, 200, run) <= 1e-4 < false_positive_bound(100_000, 200, run - 1)
    assert run_for(1 << 80, 1 << 20, 1e-12) == LENGTH


def test_the_bound_holds_where_chance_can_be_seen() -> None:
    """Runs of 2 syllables are common enough to count: a text that knows no marker shows them no oftener."""
    draw = random.Random(11)
    text = "".join(draw.choice("abdefgijklmnoprstuvz") for _ in range(400))
    trials, run, n_markers = 600, 2, 1
    bound = false_positive_bound(len(text), n_markers, run)
    shown = sum(bool(Search([mint(0, draw)], run).find(text)) for _ in range(trials))
    assert SYLLABLES == 80
    assert 0 < shown / trials <= bound * 1.1


@pytest.mark.parametrize("soup", [False, True])
def test_ten_thousand_clean_answers_accuse_nobody(soup: bool) -> None:
    """Prose, and syllables without end, which are as like markers as a text can be that does not know them."""
    draw, letters = random.Random(23), 200
    n_answers, n_markers = 10_000, 200
    run = run_for(n_answers * letters, n_markers, 2e-4)
    search = Search([mint(number, draw) for number in range(n_markers)], run)
    words = WORDS if not soup else [c + v for c in CONSONANTS for v in VOWELS]
    found = 0
    for _ in range(n_answers):
        answer = "".join(draw.choices(words, k=letters // 2))[:letters]
        found += bool(search.find(answer))
    assert (run, found) == (7, 0)
    assert false_positive_bound(n_answers * letters, n_markers, run) < 2e-4
