"""What a trace shows that the model does not allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quiesce.lab.trace.line import Line

RULES = {
    # what a file must be
    "in_order": "a worker's lines are all there, each once, in order",
    # switches of proof/push/rules.py, and invariants of the proof
    "minted_in_order": "section 2: attempts are minted in increasing order, and never again",
    "granted_is_minted": "decode speaks of attempts that it minted",
    "no_alias": "section 7: a page of a live lease is in no other live lease",
    "grants_are_kept": "rule 8: PUBLISH goes only to the rank, in the life, that was granted the destination",
    "committed_is_live": "what is committed, held or released is not published any more",
    "abort_is_held": "rule 1: the hold is armed before ABORT leaves",
    "every_failure_holds": "rule 2: every way to fail holds",
    "unbound_ranks_are_asked": "rule 3: ABORT goes to every rank that was or may have been told",
    "released_is_proved": "section 3: what is released has the proof of every rank that was told, as named",
    "released_once": "rule 15: release happens exactly once",
    "no_clock_frees": "section 3: a timer never frees (--unsafe-release-on-timeout does)",
    "commit_awaits_every_grant": "rules 8 and 14: commit needs DONE from every rank, for every decode rank",
    "coverage": "rule 11: commit follows a verification that did not fail",
    "only_committed_is_cached": "rule 12: only what was committed, or landed whole, enters a prefix tree",
    "committed_after_done": "rule 8: COMMITTED answers a DONE that counted",
    "fence_was_proved": "FENCED is said of what is fenced",
    "closed_is_over": "rule 9: an attempt that is not released is listed as open",
    "tombstones": "rule 9: nothing revives an attempt that ended",
    "tombstone_before_ack": "rules 4 and 9: ABORT is heard, and the attempt marked, before it is acked",
    "closed_is_refused": "rule 9: PUBLISH of a closed attempt is refused",
    "closed_is_silent": "rule 9: a closed attempt is not acked",
    "buried_is_refused": "rule 9: a decode life that is over is refused",
    "bound_was_granted": "a rank binds, and writes, only what was published to it",
    "digest_pairs": "section 2: PUBLISH meets a request with the same room and the same digest",
    "queue_is_dropped": "rule 4: an attempt that ended launches nothing more",
    "failure_stops": "rules 4 and 5: a failed write ends its attempt",
    "write_in_order": "each write is launched once, and settles after its launch",
    "dequeued_is_granted": "a write goes to the lease that was published, and stays within it",
    "dequeued_keeps_source": "rule 13: the source of a write is there until the write is over",
    "ack_awaits_outstanding": "rule 4: a rank acks when nothing is outstanding",
    "poisoned_is_not_acked": "rule 5: an attempt with a write of unknown fate is neither acked nor done",
    "done_is_clean": "a rank says DONE when everything that it launched has landed",
    "failed_holds_source": "rule 13: a source stays while a write of it is outstanding",
    "poisoned_holds_source": "rule 13: a source stays while a write of unknown fate may read it",
    # pull: switches of proof/pull/actions.py, and invariants of its proof
    "commit_awaits_reads": "pull, rule 8: commit, and COMMITTED, await every read",
    "stopped_launches_nothing": "pull, rule 4: an attempt that ended launches no read",
    "unknown_fate_poisons": "pull, rule 5: an attempt with a read of unknown fate is not acked",
    "read_in_order": "pull: a read is launched once, of what was offered",
    "lent_is_kept": "pull: a window is open before its OFFER leaves",
    "taken_back_is_proved": "pull, rule 13: a window is taken back by a proof that decode reads no more",
    "source_awaits_proof": "pull, rule 13: a source stays while it is lent",
    # what only several files together show
    "said_before_heard": "what is heard was said before, by that rank in that life",
    "no_wild_write": "section 7: no write is under way to a lease that was given back",
    "no_wild_write_under_readers": "section 7: no write is under way to a lease that is attended",
}
"""Names are those of the proof's protections and invariants where it has one; each with its reason."""


@dataclass(frozen=True)
class Breach:
    """`action` is the model's, `rule` one of `RULES`; `why` says it of this line."""

    line: Line
    action: str
    rule: str
    why: str

    def __str__(self) -> str:
        whose = f"{self.line.whose} step {self.line.serial}"
        return f"{self.line.where}: {whose}: {self.action} breaks {self.rule}: {self.why}"


Blame = Callable[[Line, str, str, str], None]
"""(line, action, rule, why)."""
