"""Which mutant is seen by which checker, under which seed; and which this simulator does not see, and why."""

from __future__ import annotations

import msgspec


class Catch(msgspec.Struct, frozen=True):
    """The first of the seeds from 0 on under which a mutant is seen. `effects`: an effect is about nothing any more."""

    mutant: str
    seed: int
    checker: str
    seconds: float = 15.0

    @property
    def row(self) -> str:
        """A line of the table in docs/swarm.md."""
        return f"| {self.mutant} | `{self.checker}` | {self.seed} |"


CATCHES = (
    Catch("client abort does not hold", 1, "armed_first"),
    Catch("prefill's FAIL does not hold", 1, "armed_first"),
    Catch("lost stream does not hold", 1, "armed_first"),
    Catch("deadline does not hold", 6, "armed_first"),
    Catch("failed verification does not hold", 0, "no_leak"),
    Catch("ranks that said no BOUND need not ack", 1, "no_wild_write"),
    Catch("the first rank's proof releases", 2, "no_wild_write"),
    Catch("ack while writes are outstanding", 2, "no_early_ack"),
    Catch("ack without marking the attempt aborted", 2, "no_early_ack"),
    Catch("failed_in_flight does not poison", 1, "no_wild_read"),
    Catch("one decode rank's proof releases the whole attempt", 1, "effects"),
    Catch("commit after the first DONE (coverage off)", 0, "no_leak"),
    Catch("held attempts are not listed as open", 2, "no_wild_read"),
    Catch("quarantined attempts are not listed as open", 9, "no_wild_read"),
    Catch("a late reject says DONE, and nobody looks at tags", 0, "read_own"),
    Catch("a hand-off is cached before it is verified", 0, "no_poison"),
    Catch("a failed hand-off is cached", 1, "no_poison"),
    Catch("the source of a failed request is cached", 1, "no_poison"),
    Catch("a source is cached before it has landed", 0, "no_poison"),
    Catch("the source is free when the request ends", 1, "no_wild_read"),
    Catch("the source is free at count zero, poisoned or not", 1, "no_wild_read"),
    Catch("a decode rank decides alone (coverage off)", 0, "no_leak"),
    Catch("released twice", 1, "once"),
    Catch("a clock frees what is held", 2, "no_wild_write"),
    Catch("PUBLISH is paired by room alone", 0, "no_leak"),
    Catch("memory survives the decode life", 8, "no_wild_write"),
    Catch("the writer's death is a fence", 2, "no_wild_write"),
    Catch("ABORT leaves before the hold is armed", 1, "armed_first"),
    Catch("DONE is no proof", 0, "no_leak"),
    Catch("calls queued behind a failed one are launched", 1, "chunks_in_order"),
)

UNSEEN = {
    "peer's new life does not hold": "the lost stream is noticed first, and has failed the attempt",
    "an ack of the next life counts": "streams are between lives: nothing for one reaches the next",
    "re-PUBLISH to the next life forgets the old grant": "there is no stream yet to the life that it publishes to",
}
"""Mutants that a faithful executor cannot show; the explorer, which delivers anything to anybody, does."""
