"""Push: the protections of the protocol, each of which a mutant leaves out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PushRules:
    """True is the protocol of PROTOCOL.md; the number is that of its rule in section 4, or a section."""

    every_failure_holds: bool = True  # 2
    unbound_ranks_are_asked: bool = True  # 3
    ack_awaits_outstanding: bool = True  # 4
    count_rises_at_dequeue: bool = True  # 4
    queue_is_dropped: bool = True  # 4
    failure_stops: bool = True  # 4
    count_is_per_attempt: bool = True  # 4
    unknown_fate_poisons: bool = True  # 5
    poisoned_is_not_acked: bool = True  # 5
    source_fence_is_no_ack: bool = True  # 5
    acks_are_per_destination: bool = True  # 6
    acks_are_per_attempt: bool = True  # 7
    acks_are_per_life: bool = True  # 7
    done_is_per_life: bool = True  # 8
    done_of_granted_only: bool = True  # 8; a redundant check, see variants
    commit_awaits_every_grant: bool = True  # 8
    grants_are_kept: bool = True  # 8
    tombstones: bool = True  # 9
    tombstone_before_ack: bool = True  # 9
    closed_is_refused: bool = True  # 9
    closed_is_silent: bool = True  # 9; a redundant check, see variants
    closed_stays_closed: bool = True  # 9
    quarantine_stays_open: bool = True  # 9
    record_outlives_commit: bool = True  # 9
    buried_is_refused: bool = True  # 9
    minted_in_order: bool = True  # section 2
    coverage: bool = True  # 11
    only_committed_is_cached: bool = True  # 12
    failed_holds_source: bool = True  # 13
    poisoned_holds_source: bool = True  # 13
    ranks_decide_together: bool = True  # 14
    released_once: bool = True  # 15
    no_clock_frees: bool = True  # 16, section 3
    digest_pairs: bool = True  # section 2
    fresh_memory: bool = True  # section 2
    fresh_source_memory: bool = True  # section 2
    fence_is_permanent: bool = True  # section 3
    death_fences_plain_stores_only: bool = True  # section 3
    landed_is_placed: bool = True  # section 6
    quiesced_cannot_land: bool = True  # section 6
    done_is_an_ack: bool = True  # 8; may be left out, see variants
    closed_frees_source: bool = True  # 3; may be left out, see variants
    hold_before_ack: bool = True  # 1; a matter of no_leak, see variants
