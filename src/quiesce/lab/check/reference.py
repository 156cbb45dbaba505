"""docs/worlds.md, made from the worlds: `python -m quiesce.lab.check.reference > docs/worlds.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.features import FEATURES, IMPOSSIBLE, NOT_IN_PULL, OF_PULL, features_of, meetings
from quiesce.lab.explorer.worlds import FULL, SMALL

_INTRODUCTION = """# Worlds

This page is generated from the worlds that `quiesce check` explores, by `python -m quiesce.lab.check.reference`; a test
compares it with them. [check.md](check.md) says what a world is and how to read what is found.

In every world messages arrive in any order, writes land as late as they like, and a request may be served before, after
or between what becomes of another one. Beyond that a world has *features*. Every pair of features meets in at least one
world of small bounds, so that both may be in one course of events; the table says in which (the first, by its number),
and in how many more. Whether a fence is to be had matters wherever a hold lasts, which is in what follows every state
when no more faults strike.

In worlds of *pull* decode reads what prefill lends: what is said of writes is said of reads there, a fence is decode's
own closed endpoint, and prefill's closed endpoint is that all its windows are revoked. Each feature meets pull; where
neither of two features is of pull, only worlds without it count."""


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join([_INTRODUCTION, "", *_worlds(), "", *_pairs(SMALL), "", *_apart()]) + "\n"


def _worlds() -> Iterator[str]:
    yield "## The worlds"
    yield ""
    yield "| no. | world | bounds | features |"
    yield "| --- | --- | --- | --- |"
    letters = _letters()
    for number, (name, world) in enumerate(FULL.items(), 1):
        has = " ".join(letters[feature] for feature in FEATURES if feature in features_of(world))
        yield f"| {number} | {name} | {'small' if name in SMALL else 'full'} | {has} |"


def _letters() -> dict[str, str]:
    """A short name for each feature: A to Z, then AA and so on."""
    short = [chr(65 + i) for i in range(26)] + [f"A{chr(65 + i)}" for i in range(26)]
    return dict(zip(FEATURES, short, strict=False))


def _pairs(worlds: Mapping[str, Config]) -> Iterator[str]:
    letters, met = _letters(), meetings(worlds)
    numbers = {name: number for number, name in enumerate(FULL, 1)}
    names = list(FEATURES)
    yield "## Every pair of features"
    yield ""
    yield f"| | feature | {' | '.join(letters[name] for name in names[:-1])} |"
    yield f"| --- | --- |{' --- |' * (len(names) - 1)}"
    for row, name in enumerate(names):
        cells = [_cell(met, numbers, frozenset({name, other})) for other in names[:row]]
        yield f"| {letters[name]} | {name} | {' | '.join([*cells, *[''] * (len(names) - 1 - row)])} |"


def _cell(met: Mapping[frozenset[str], list[str]], numbers: Mapping[str, int], pair: frozenset[str]) -> str:
    if pair in IMPOSSIBLE:
        return "x"
    found = sorted(numbers[name] for name in met[pair])
    return f"{found[0]}+{len(found) - 1}" if len(found) > 1 else f"{found[0]}" if found else "MISSING"


def _apart() -> Iterator[str]:
    pairs = [
        f"*{one}* and *{other}*: {IMPOSSIBLE[frozenset({one, other})]}"
        for one, other in combinations(FEATURES, 2)
        if frozenset({one, other}) in IMPOSSIBLE and not {one, other} & set(OF_PULL)
    ]
    of_pull = [f"*{name}* and what is of pull: {why}" for name, why in NOT_IN_PULL.items()]
    yield f"x: cannot meet. {'; '.join([*pairs, *of_pull])}."


if __name__ == "__main__":
    print(page(), end="")
