"""docs/mutants.md: which mutant is seen by which layer, and how; written by `python -m tests.mutants`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from quiesce.lab.mutants.mutant import Mutant
from tests.mutants.known import MUTANTS
from tests.mutants.layers import LAYERS

PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"

_INTRODUCTION = """# Mutants

A mutant is the shipping code with one rule left out. Whoever claims to check a rule must see that it is gone: a green
check that no mutant can turn red proves nothing. `make mutants` runs every mutant against every layer and writes this
page; a test asks that it names all mutants of today, and that two layers see each, or that it says why only one can.

| layer | what it is | what a cell says |
| --- | --- | --- |
| explorer | every state of a small world of the machines ([check.md](check.md)) | what breaks, after how few moves |
| checks | tests of single rules (`tests/protocol/*checks.py`, `tests/worker/*checks.py`) | the check that fails |
| walks | the proof's invariants, on states of the machines on random ways | the invariant that is false |
| proof | the model of [claim.md](claim.md) with the same rule left out | the obligation that breaks; harm follows |
| swarm | simulated clusters (`quiesce lab swarm`) | the property that breaks, and the seed |

`quiesce check --mutant NAME` shows the shortest way to the harm, and `quiesce lab run` has many of them as stories."""

Seen = Mapping[str, str]


def written(seen: Mapping[str, Seen]) -> str:
    """The page, from what each layer said of each mutant (by name)."""
    return "\n".join([_INTRODUCTION, "", *_table(seen), "", *_reasons(seen)]) + "\n"


def _table(seen: Mapping[str, Seen]) -> Iterator[str]:
    yield f"| rule | what is left out | {' | '.join(LAYERS)} |"
    yield f"| --- | --- |{' --- |' * len(LAYERS)}"
    for mutant in MUTANTS:
        cells = [seen[mutant.name].get(layer, "") or "-" for layer in LAYERS]
        yield f"| {mutant.rule} | {mutant.name} | {' | '.join(cells)} |"


def _reasons(seen: Mapping[str, Seen]) -> Iterator[str]:
    yield "Only one layer can see these:"
    yield ""
    for mutant in MUTANTS:
        if _count(seen[mutant.name]) < 2:
            yield f"- {mutant.name}: {why_alone(mutant) or 'NO REASON IS GIVEN'}"


def _count(seen: Seen) -> int:
    return sum(bool(each) for each in seen.values())


def why_alone(mutant: Mutant) -> str:
    """Why one layer is enough, or ""."""
    if mutant.alone:
        return mutant.alone
    return OF_ROUTER.get(mutant.rule, "")


_QUEUES = "it is about who is served when, which is no matter of the hand-off: worlds and proof have no tenants"
OF_ROUTER = {
    "fair": _QUEUES,
    "quota": _QUEUES,
    "breaker": "it is about where requests are sent, which may be anywhere in worlds and proof",
    "5.": "it is the router's machine, which worlds and proof do not have: there either half may end at any time",
    "10": "a door refuses before anything exists; in worlds and proof that request never was",
}


def told(page: str) -> dict[str, dict[str, str]]:
    """What a written page says: mutant to layer to cell, empty cells left out."""
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| (.+) \|$", page[page.index("| rule |") :], flags=re.MULTILINE)
    tables = {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in rows}
    return {
        name: {layer: cell for layer, cell in zip(LAYERS, cells, strict=True) if cell != "-"}
        for name, cells in tables.items()
        if name not in ("what is left out",) and len(cells) == len(LAYERS) and not cells[0].startswith("---")
    }
