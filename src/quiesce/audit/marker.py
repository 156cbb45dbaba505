"""Random phrases that are planted in prompts, and the search for them in answers that must not know them.

A marker is 12 syllables, each one of 80, drawn independently and uniformly. A text that does not depend on the marker
has a given run of w syllables at a given place with probability 80^-w, whatever the text is: no model of language is
assumed. The union over places, markers and runs bounds how often a clean answer is accused.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

import msgspec

CONSONANTS = "bdfghjklmnprstvz"
VOWELS = "aeiou"
SYLLABLES = len(CONSONANTS) * len(VOWELS)
LENGTH = 12
"""Syllables of a marker."""

WORD = 4
"""Syllables of each of its words, as it is written in prompts."""

SHORTEST_RUN = 4
_NO_LETTER = re.compile(r"[^a-z]+")


class Marker(msgspec.Struct, frozen=True):
    """`letters` is the phrase without spaces, two letters for each syllable."""

    id: int
    letters: str

    @property
    def phrase(self) -> str:
        """As it stands in a prompt: three capitalised words."""
        size = 2 * WORD
        return " ".join(self.letters[i : i + size].capitalize() for i in range(0, len(self.letters), size))


class Hit(msgspec.Struct, frozen=True):
    """A run of a foreign marker in a text: our own syllables from `first` on, `count` of them."""

    marker: int
    first: int
    count: int
    excerpt: str

    @property
    def is_whole(self) -> bool:
        return self.count == LENGTH


def mint(marker: int, draw: random.Random) -> Marker:
    """A new marker with the number `marker`."""
    return Marker(marker, "".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(LENGTH)))


def letters_of(text: str) -> str:
    """What is searched: small ASCII letters alone, so that spaces, hyphens and capitals hide nothing."""
    return _NO_LETTER.sub("", text.casefold())


def comparisons(places: int, markers: int, run: int) -> int:
    """How many times a run of a marker is held against a place of a text."""
    return places * markers * (LENGTH - run + 1)


def false_positive_bound(places: int, markers: int, run: int) -> float:
    """At most the probability that texts with `places` letters in all, which know no marker, show any run of one."""
    return min(1.0, comparisons(places, markers, run) * float(SYLLABLES) ** -run)


def run_for(places: int, markers: int, at_most: float) -> int:
    """The shortest run to look for that keeps the false-positive bound under `at_most`; the whole marker if none."""
    runs = range(SHORTEST_RUN, LENGTH)
    return next((run for run in runs if false_positive_bound(places, markers, run) <= at_most), LENGTH)


class Search:
    """Finds runs of at least `run` syllables of markers. One dictionary look-up for each letter of a text."""

    def __init__(self, markers: Iterable[Marker], run: int) -> None:
        self.run = run
        self._markers: dict[int, Marker] = {}
        self._runs: dict[str, tuple[int, int]] = {}
        for marker in markers:
            self.add(marker)

    def __len__(self) -> int:
        return len(self._markers)

    def add(self, marker: Marker) -> None:
        self._markers[marker.id] = marker
        for first in range(LENGTH - self.run + 1):
            self._runs[marker.letters[2 * first : 2 * (first + self.run)]] = (marker.id, first)

    def remove(self, marker: int) -> None:
        letters = self._markers.pop(marker).letters
        for first in range(LENGTH - self.run + 1):
            self._runs.pop(letters[2 * first : 2 * (first + self.run)], None)

    def find(self, text: str, own: Sequence[int] = ()) -> tuple[Hit, ...]:
        """The longest run of each marker in `text` that is not among `own`."""
        letters, size = letters_of(text), 2 * self.run
        best: dict[int, Hit] = {}
        for place in range(len(letters) - size + 1):
            found = self._runs.get(letters[place : place + size])
            if found is None or found[0] in own:
                continue
            hit = self._extended(letters, place, *found)
            if hit.marker not in best or hit.count > best[hit.marker].count:
                best[hit.marker] = hit
        return tuple(best.values())

    def _extended(self, letters: str, place: int, marker: int, first: int) -> Hit:
        """The run that begins at `place`, as far as it goes on."""
        planted = self._markers[marker].letters
        count = self.run
        while first + count < LENGTH:
            there, here = 2 * (first + count), place + 2 * count
            if letters[here : here + 2] != planted[there : there + 2]:
                break
            count += 1
        return Hit(marker, first, count, planted[2 * first : 2 * (first + count)])
