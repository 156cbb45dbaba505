"""Push without one of its protections: the obligation that breaks, and the run from the start that does the harm."""

from __future__ import annotations

from proof.model import Mutant, Run, Variant, without

SENT = "reserve publish bind dequeue launch"  # a write is in the air
ACKED = "abort hear_abort send_ack hear_ack release"  # the attempt fails, is acked, and its pages are free
DONE = "read_source land landed send_done hear_done"
TWO_WRITES = {"Write": 2}
TWO_LIVES = {"Life": 2}

MUTANTS = (
    Mutant(
        "2",
        "one way to fail gives the pages back at once",
        without("every_failure_holds"),
        "abort_without_hold / no_wild_write",
        Run(f"{SENT} abort_without_hold", "no_wild_write"),
    ),
    Mutant(
        "3",
        "only ranks that said BOUND are waited for",
        without("unbound_ranks_are_asked"),
        "release / released_is_proved",
        Run(f"{SENT} abort release", "no_wild_write"),
    ),
    Mutant(
        "4",
        "ack while writes are outstanding",
        without("ack_awaits_outstanding"),
        "send_ack / no_early_ack",
        Run(f"{SENT} {ACKED}", "no_wild_write"),
    ),
    Mutant(
        "4",
        "the count rises at launch, not at dequeue",
        without("count_rises_at_dequeue"),
        "dequeue / dequeued_is_counted",
        Run(f"reserve publish bind dequeue {ACKED} launch", "no_wild_write"),
    ),
    Mutant(
        "4",
        "queued chunks go out after ABORT",
        without("queue_is_dropped"),
        "dequeue / no_early_ack",
        Run(f"reserve publish bind {ACKED} dequeue launch", "no_wild_write"),
    ),
    Mutant(
        "4",
        "a failed call does not end the attempt",
        without("failure_stops"),
        "failed_quiesced / torn_is_not_done",
        Run(
            f"{SENT} read_source land landed dequeue launch read_source tear vanish failed_quiesced "
            "send_done hear_done commit",
            "read_own",
            TWO_WRITES,
        ),
    ),
    Mutant(
        "4",
        "the count is the room's, and starts anew when the room is used again",
        without("count_is_per_attempt"),
        "bind / flying_is_counted",
        Run(f"{SENT} reserve publish bind {ACKED}", "no_wild_write"),
    ),
    Mutant(
        "5",
        "failed_in_flight does not poison",
        without("unknown_fate_poisons"),
        "failed_in_flight / flying_is_counted",
        Run(f"{SENT} failed_in_flight {ACKED}", "no_wild_write"),
    ),
    Mutant(
        "5",
        "a poisoned attempt is acked",
        without("poisoned_is_not_acked"),
        "send_ack / no_early_ack",
        Run(f"{SENT} failed_in_flight {ACKED}", "no_wild_write"),
    ),
    Mutant(
        "5",
        "the sender's own destroyed endpoint counts as drained",
        without("source_fence_is_no_ack"),
        "destroy_endpoint / flying_is_counted",
        Run(f"{SENT} read_source destroy_endpoint {ACKED}", "no_wild_write"),
    ),
    Mutant(
        "6",
        "an ack for a sibling decode rank's lease counts",
        without("acks_are_per_destination"),
        "hear_ack / acked_was_said",
        Run(f"reserve publish publish bind dequeue launch {ACKED}", "no_wild_write"),
    ),
    Mutant(
        "7",
        "acks are matched by room",
        without("acks_are_per_attempt"),
        "hear_ack / acked_was_said",
        Run(f"reserve publish {ACKED} {SENT} abort hear_ack release", "no_wild_write"),
    ),
    Mutant(
        "7",
        "an ack of the rank's next life counts",
        without("acks_are_per_life"),
        "hear_ack / acked_was_said",
        Run(f"{SENT} crash_prefill abort ack_for_old_life hear_ack release", "no_wild_write", TWO_LIVES),
    ),
    Mutant(
        "8",
        "DONE is matched by rank, not by life",
        without("done_is_per_life"),
        "hear_done / done_was_said",
        Run(f"{SENT} crash_prefill publish bind send_done hear_done abort release", "no_wild_write", TWO_LIVES),
    ),
    Mutant(
        "8",
        "commit without the DONE of every granted rank and life",
        without("commit_awaits_every_grant"),
        "commit / committed_after_done",
        Run(
            f"{SENT} crash_prefill publish bind dequeue launch {DONE} commit read_source tear",
            "read_own",
            {"Life": 2, "Write": 2, "Source": 2},
        ),
    ),
    Mutant(
        "8",
        "PUBLISH to a rank's next life forgets that the old one was granted",
        without("grants_are_kept"),
        "publish / dequeued_is_granted",
        Run(f"{SENT} crash_prefill publish {ACKED}", "no_wild_write", TWO_LIVES),
    ),
    Mutant(
        "9",
        "no tombstone: a late PUBLISH revives the attempt",
        without("tombstones"),
        "bind / end_is_remembered",
        Run(f"reserve publish {ACKED} bind dequeue launch", "no_wild_write"),
    ),
    Mutant(
        "9",
        "never heard of it: ack without a tombstone",
        without("tombstone_before_ack"),
        "ack_unknown / end_is_remembered",
        Run("reserve publish abort ack_unknown hear_ack release bind dequeue launch", "no_wild_write"),
    ),
    Mutant(
        "9",
        "tombstones go when the attempt is closed, and PUBLISH of a closed attempt is obeyed",
        without("closed_is_refused"),
        "bind / closed_has_no_record",
        Run(f"reserve publish {ACKED} say_closed hear_closed bind dequeue launch", "no_wild_write"),
    ),
    Mutant(
        "9",
        "what is closed opens again when an older message is heard",
        without("closed_stays_closed"),
        "reopen / end_is_remembered",
        Run(f"reserve publish {ACKED} say_closed hear_closed reopen bind dequeue launch", "no_wild_write"),
    ),
    Mutant(
        "9",
        "quarantined attempts are not listed as open",
        without("quarantine_stays_open"),
        "say_closed / closed_is_over",
        Run(f"{SENT} abort quarantine say_closed hear_closed reuse_source", "no_wild_read"),
    ),
    Mutant(
        "9",
        "quarantined attempts are not listed as open, and ABORT of a closed attempt is acked",
        without("quarantine_stays_open", "closed_is_silent"),
        "say_closed / closed_is_over",
        Run(f"{SENT} abort quarantine say_closed hear_closed ack_closed hear_ack release", "no_wild_write"),
    ),
    Mutant(
        "9",
        "the record goes at COMMITTED",
        without("record_outlives_commit"),
        "forget_committed / end_is_remembered",
        Run(f"{SENT} {DONE} commit forget_committed bind dequeue launch read_source tear", "read_own", TWO_WRITES),
    ),
    Mutant(
        "9",
        "records go with a lost peer, and its life is not refused",
        without("buried_is_refused"),
        "bind / buried_is_stopped",
        Run(f"reserve publish {ACKED} bury bind dequeue launch", "no_wild_write"),
    ),
    Mutant(
        "section 2",
        "attempts are not minted in order",
        without("minted_in_order"),
        "reserve / closed_is_over",
        Run("reserve say_closed reserve publish bind dequeue launch hear_closed reuse_source", "no_wild_read"),
    ),
    Mutant(
        "10 and 11",
        "a late reject says DONE, and nobody looks at tags",
        without("coverage"),
        "commit / read_own",
        Run("reserve publish bind send_done hear_done commit", "read_own"),
    ),
    Mutant(
        "12",
        "a failed attempt's page enters the prefix tree",
        without("only_committed_is_cached"),
        "cache_failed / read_own_shared",
        Run(f"reserve publish {ACKED} cache_failed", "read_own_shared"),
    ),
    Mutant(
        "13",
        "the source is free when its request has failed",
        without("failed_holds_source"),
        "reuse_source / no_wild_read",
        Run(f"{SENT} stop reuse_source", "no_wild_read"),
    ),
    Mutant(
        "13",
        "the source is free when the count is zero, poisoned or not",
        without("poisoned_holds_source"),
        "reuse_source / no_wild_read",
        Run(f"{SENT} failed_in_flight reuse_source", "no_wild_read"),
    ),
    Mutant(
        "14",
        "each decode rank decides alone",
        without("ranks_decide_together"),
        "commit / one_decision",
        Run(f"{SENT} {DONE} commit", "read_own", {"Page": 2}),
    ),
    Mutant(
        "15",
        "release does not ask whether the lease is released already",
        without("released_once"),
        "release / once",
        Run("reserve abort release release", "once"),
    ),
    Mutant(
        "16",
        "a clock, a flush or a shutdown frees what is held",
        without("no_clock_frees"),
        "clock_frees / released_is_proved",
        Run(f"{SENT} abort clock_frees", "no_wild_write"),
    ),
    Mutant(
        "section 2",
        "PUBLISH is paired by room alone",
        without("digest_pairs"),
        "bind / bound_to_own_digest",
        Run(f"{SENT} {DONE} commit", "read_own"),
    ),
    Mutant(
        "section 2",
        "memory survives the decode life",
        without("fresh_memory"),
        "reserve / lease_is_own_memory",
        Run(f"{SENT} crash_decode reserve", "no_wild_write", {"DecodeLife": 2}),
    ),
    Mutant(
        "section 2",
        "memory survives the prefill life",
        without("fresh_source_memory"),
        "reuse_source / no_wild_read",
        Run(f"{SENT} crash_prefill reuse_source", "no_wild_read", TWO_LIVES),
    ),
    Mutant(
        "section 3",
        "the writer's death is a fence whatever the transport",
        without("death_fences_plain_stores_only"),
        "fence_by_death / fenced_is_out",
        Run(f"{SENT} crash_prefill abort fence_by_death release", "no_wild_write", TWO_LIVES),
    ),
    Mutant(
        "section 3",
        "a fence is undone: the same address or key is valid again",
        without("fence_is_permanent"),
        "launch / fenced_is_out",
        Run("reserve publish bind dequeue abort fence release launch", "no_wild_write"),
    ),
    Mutant(
        "section 6",
        "`landed` is reported before the bytes are placed",
        without("landed_is_placed"),
        "landed / flying_is_counted",
        Run(f"{SENT} landed {ACKED}", "no_wild_write"),
    ),
    Mutant(
        "section 6",
        "`failed_quiesced` is reported of a write that can still land",
        without("quiesced_cannot_land"),
        "failed_quiesced / flying_is_counted",
        Run(f"{SENT} failed_quiesced {ACKED}", "no_wild_write"),
    ),
)

VARIANTS = (
    Variant("rule 1: an ack counts before the hold is armed (that is a matter of no_leak)", without("hold_before_ack")),
    Variant("rule 8: DONE is no substitute for an ack", without("done_is_an_ack")),
    Variant(
        "rule 8: DONE counts unasked whether the rank was granted (only granted ranks say it)",
        without("done_of_granted_only"),
    ),
    Variant("rule 9: ABORT of a closed attempt is acked (closed means proved)", without("closed_is_silent")),
    Variant("rule 13: a closed attempt does not free its source pages", without("closed_frees_source")),
)

STORIES = (
    Run(
        "reserve publish bind hear_bound dequeue launch read_source tear land landed "
        "send_done hear_done commit cache finish evict"
    ),
    Run(f"{SENT} {DONE} commit cache reserve share finish abort release evict"),
    Run(
        f"{SENT} abort hear_abort read_source land landed send_ack hear_ack release say_closed hear_closed reuse_source"
    ),
    Run(f"{SENT} failed_in_flight abort quarantine fence hear_fenced reuse_source release"),
    Run(f"{SENT} vanish failed_quiesced {ACKED} reserve publish"),
    Run(f"{SENT} crash_prefill abort fence_by_death release", sizes=TWO_LIVES),
    Run(f"{SENT} destroy_endpoint stop reuse_source"),
    Run(f"{SENT} crash_decode bury vanish failed_quiesced forget_buried"),
)
