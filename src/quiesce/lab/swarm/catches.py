"""Which mutant is seen by which checker, under which seed; and which this simulator does not see, and why."""

from __future__ import annotations

import msgspec

from quiesce.lab.swarm.parameters import Way


class Catch(msgspec.Struct, frozen=True):
    """A seed under which a mutant is seen. `effects`: an effect is about nothing any more."""

    mutant: str
    seed: int
    checker: str
    seconds: float = 15.0
    way: Way = Way("push", "direct")

    @property
    def row(self) -> str:
        """A line of the table in docs/swarm.md."""
        return f"| {self.mutant} | `{self.checker}` | {self.seed} |"


PUSHED = (
    Catch("ABORT leaves before the hold is armed", 0, "armed_first"),
    Catch("an ack from before the hold counts", 1, "no_wild_write"),
    Catch("client abort does not hold", 0, "armed_first"),
    Catch("prefill's FAIL does not hold", 1, "armed_first"),
    Catch("deadline does not hold", 3, "armed_first"),
    Catch("lost stream does not hold", 2, "armed_first"),
    Catch("failed verification does not hold", 0, "armed_first"),
    Catch("ranks that said no BOUND need not ack", 39, "no_wild_write"),
    Catch("the first rank's proof releases", 2, "no_wild_write"),
    Catch("a rank that never heard of it stays silent", 40, "no_leak"),
    Catch("ABORT is not re-sent", 56, "no_leak"),
    Catch("ack while writes are outstanding", 2, "no_early_ack"),
    Catch("ack without marking the attempt aborted", 2, "no_early_ack"),
    Catch("calls queued behind a failed one are launched", 1, "chunks_in_order"),
    Catch("failed_in_flight does not poison", 1, "no_wild_read"),
    Catch("one decode rank's proof releases the whole attempt", 1, "effects"),
    Catch("answers are matched by room", 116, "no_wild_write"),
    Catch("an ack of the next life counts", 172, "no_wild_write"),
    Catch("an ack that admits outstanding writes counts", 1, "no_wild_write"),
    Catch("re-PUBLISH to the next life forgets the old grant", 196, "no_wild_write"),
    Catch("commit after the first DONE (coverage off)", 0, "read_own"),
    Catch("DONE is no proof", 0, "no_leak"),
    Catch("no tombstone after the ack", 85, "no_wild_write"),
    Catch("never heard of it: ack without tombstone", 85, "no_wild_write"),
    Catch("closed attempts are obeyed", 167, "no_wild_write"),
    Catch("what is closed opens again", 167, "no_wild_write"),
    Catch("held attempts are not listed as open", 0, "no_leak"),
    Catch("quarantined attempts are not listed as open", 9, "no_wild_read"),
    Catch("a late reject says DONE, and nobody looks at tags", 0, "read_own"),
    Catch("a hand-off is cached before it is verified", 0, "no_poison"),
    Catch("a failed hand-off is cached", 0, "no_poison"),
    Catch("the source of a failed request is cached", 0, "no_poison"),
    Catch("a source is cached before it has landed", 0, "no_poison"),
    Catch("the source is free when the request ends", 1, "no_wild_read"),
    Catch("the source is free at count zero, poisoned or not", 1, "no_wild_read"),
    Catch("a decode rank decides alone (coverage off)", 0, "read_own"),
    Catch("released twice", 0, "once"),
    Catch("a clock frees what is held", 1, "no_wild_write"),
    Catch("PUBLISH is paired by room alone", 1, "ends_once"),
    Catch("memory survives the decode life", 8, "no_wild_write"),
    Catch("the writer's death is a fence", 2, "no_wild_write"),
)

PULLED = (
    ("pull: prefill hears of a failure before it is held", 0, "armed_first"),
    ("pull: OFFER leaves before its window is open", 0, "armed_first"),
    ("pull: client abort does not hold", 8, "no_wild_write"),
    ("pull: deadline does not hold", 7, "no_wild_write"),
    ("pull: lender's new life does not hold", 2, "no_wild_write"),
    ("pull: ack while reads are outstanding", 1, "no_early_ack"),
    ("pull: an attempt that ended goes on launching reads", 8, "armed_first"),
    ("pull: failed_in_flight does not poison", 9, "no_early_ack"),
    ("pull: a poisoned attempt is acked", 9, "no_early_ack"),
    ("pull: one decode rank's reads speak for another's", 1, "no_early_ack"),
    ("pull: commit before every read is terminal (coverage off)", 0, "no_wild_write"),
    ("pull: held attempts are not listed as open", 7, "no_wild_read"),
    ("pull: a failed read counts as landed, and nobody looks at tags", 0, "read_own"),
    ("pull: lent pages are cached before they were read", 0, "no_poison"),
    ("pull: what was acked is cached", 0, "no_poison"),
    ("pull: lent pages are free when the request ends", 7, "no_wild_read"),
    ("pull: a clock frees the lent pages", 78, "no_wild_read"),
    ("pull: released twice", 1, "once"),
    ("pull: OFFER is said once", 14, "no_leak"),
    ("pull: OFFER of what is over is not answered", 14, "no_leak"),
    ("pull: what prefill revoked frees decode's page", 40, "no_wild_write"),
    ("pull: a revoked window still serves reads", 2, "no_wild_read"),
    ("pull: ASK is paired by room alone, and any offer is read", 1, "ends_once"),
    ("pull: memory survives the decode life", 8, "no_wild_write"),
    ("pull: memory survives the prefill life", 9, "no_wild_read"),
)
STAGED = (
    ("staged: pages come back while they are copied", 0, "no_alias"),
    ("staged: a hold keeps the context", 0, "no_leak"),
    ("staged: a hold gives landing pages back", 0, "once"),
    ("staged: commit keeps the landing pages", 0, "no_leak"),
    ("staged: the context of a finished request is forgotten", 0, "no_leak"),
    ("staged: quarantined landing pages circulate", 1, "no_alias"),
)
CATCHES = (
    *PUSHED,
    *(Catch(*seen, way=Way("pull")) for seen in PULLED),
    *(Catch(*seen, way=Way("push", "staged")) for seen in STAGED),
)

UNSEEN = {
    "peer's new life does not hold": "the lost stream is noticed first, and has failed the attempt",
    "pull: a replaced reader's loan is taken back": "nobody takes the name of a decode worker that lives",
    "pull: no tombstone after ABORT_ACK": "a late ASK is computed for nobody, and its OFFER is answered FENCED",
    "pull: no deadline for a loan": "decode ends it in its own time, and then says so",
}
"""Mutants that a faithful executor cannot show; the explorer, which delivers anything to anybody, does."""
