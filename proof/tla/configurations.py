"""Which worlds TLC visits: all of a small one and of a larger one, and worlds in which a protection is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proof.push.mutants import MUTANTS

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Configuration:
    """A file of this folder, with other sizes and without some protections; `violates`: what must be found false."""

    name: str
    file: str = "one.cfg"
    sizes: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    violates: str = ""

    def text(self) -> str:
        """As TLC reads it. A world that must fail is asked for nothing but the harm: most are not safe otherwise."""
        text = (FOLDER / self.file).read_text(encoding="utf-8")
        for name, size in self.sizes.items():
            text = re.sub(rf"(?m)^  {name} = \d+$", f"  {name} = {size}", text)
        without = ", ".join(f'"{each}"' for each in self.left_out)
        text = text.replace("LeftOut = {}", f"LeftOut = {{{without}}}")
        return re.sub(r"(?s)INVARIANTS.*", f"INVARIANTS\n  {self.violates}\n", text) if self.violates else text


WHOLE = (
    Configuration("one of everything"),
    Configuration("two requests want one source page", sizes={"Requests": 2}),
)

LARGER = (
    Configuration("a spare prefill life", sizes={"SpareLives": 1}),
    Configuration("two attempts share a page", sizes={"Attempts": 2}),
    Configuration("two decode ranks", sizes={"DecodeRanks": 2}),
)
"""None was visited to its end yet: the first had 172,085 states at depth 16, and was growing."""

NEEDS: dict[str, dict[str, int]] = {
    "acks_are_per_destination": {"DecodeRanks": 2},
    "acks_are_per_life": {"SpareLives": 1},
    "done_is_per_life": {"SpareLives": 1},
    "grants_are_kept": {"SpareLives": 1},
    "death_fences_plain_stores_only": {"SpareLives": 1},
    "fresh_source_memory": {"SpareLives": 1, "Requests": 2},
}
"""What a world must have for the harm to happen, where one of everything does not."""

MANY_STATES = "a world of this size has very many states before the harm: not done in two minutes, or not tried"
NOT_HERE = {
    "digest_pairs": "a write of World.tla carries what its lease wants",
    "fresh_memory": "a lease of World.tla has pages of its own life",
    "count_is_per_attempt": MANY_STATES,
    "acks_are_per_attempt": MANY_STATES,
    "minted_in_order": MANY_STATES,
    "failure_stops": MANY_STATES,
    "commit_awaits_every_grant": MANY_STATES,
    "record_outlives_commit": MANY_STATES,
    "ranks_decide_together": MANY_STATES,
}
"""Why TLC is not asked about these protections; Z3 finds their runs (`python -m proof --runs`)."""


def missing() -> tuple[Configuration, ...]:
    """The proof's mutants that these worlds can show, each with the harm that it must do."""
    worlds = []
    for mutant in MUTANTS:
        left_out = tuple(mutant.without)
        sizes = {"Requests": 2} if mutant.harm.violates == "no_wild_read" else {}
        for rule in left_out:
            sizes |= NEEDS.get(rule, {})
        if not set(left_out) & set(NOT_HERE):
            worlds.append(Configuration(mutant.name, sizes=sizes, left_out=left_out, violates=mutant.harm.violates))
    return tuple(worlds)


MISSING = missing()
