"""Pull without one of its protections: the obligation that breaks, and the run from the start that does the harm."""

from __future__ import annotations

from proof.model import Mutant, Run, Variant, without

SENT = "reserve offer launch"  # a read is in the air
TWO_LIVES = {"Life": 2}

MUTANTS = (
    Mutant(
        "2",
        "one way to fail gives the pages back at once",
        without("every_failure_holds"),
        "release_without_hold / released_is_proved",
        Run(f"{SENT} release_without_hold", "no_wild_write"),
    ),
    Mutant(
        "4",
        "ack while reads are outstanding",
        without("ack_awaits_outstanding"),
        "send_ack / no_early_ack",
        Run(f"{SENT} abort send_ack release", "no_wild_write"),
    ),
    Mutant(
        "4",
        "an attempt that ended goes on launching reads",
        without("stopped_launches_nothing"),
        "launch / no_early_ack",
        Run("reserve offer abort send_ack launch release", "no_wild_write"),
    ),
    Mutant(
        "5",
        "an attempt with a read of unknown fate is acked",
        without("unknown_fate_poisons"),
        "send_ack / no_early_ack",
        Run(f"{SENT} failed_in_flight abort send_ack release", "no_wild_write"),
    ),
    Mutant(
        "8",
        "COMMITTED before every read is terminal",
        without("commit_awaits_reads"),
        "commit / no_early_ack",
        Run(f"{SENT} launch serve land landed commit", "no_wild_write", {"Read": 2}),
    ),
    Mutant(
        "9",
        "held attempts are not listed as open",
        without("closed_is_over"),
        "say_closed / closed_is_over",
        Run(f"{SENT} abort say_closed take_back reuse_source", "no_wild_read"),
    ),
    Mutant(
        "11",
        "commit without looking at tags",
        without("coverage"),
        "commit / read_own",
        Run("reserve commit", "read_own"),
    ),
    Mutant(
        "13",
        "a clock frees the lent pages",
        without("source_awaits_proof"),
        "take_back / taken_back_is_proved",
        Run(f"{SENT} take_back reuse_source", "no_wild_read"),
    ),
    Mutant(
        "section 6",
        "revoking the window at the source frees decode's page",
        without("revoking_frees_source_only"),
        "release / released_is_proved",
        Run(f"{SENT} serve abort revoke release", "no_wild_write"),
    ),
    Mutant(
        "section 6",
        "a revoked window still serves reads",
        without("revoked_is_not_served"),
        "serve / carries_own",
        Run(f"{SENT} revoke take_back reuse_source serve land landed commit", "read_own"),
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
)

VARIANTS = (
    Variant(
        "section 6: decode's death frees no source (it takes an ack, FENCED or a revoked window)",
        without("death_frees_source"),
    ),
)

STORIES = (
    Run(f"{SENT} serve land landed commit take_back reuse_source finish"),
    Run(f"{SENT} abort vanish failed_quiesced send_ack release take_back reserve"),
    Run(f"{SENT} serve failed_in_flight abort close_endpoint release say_closed take_back"),
    Run(f"{SENT} revoke take_back reuse_source crash_prefill offer crash_decode", sizes=TWO_LIVES),
)
