"""Mutants of the hand-off's two machines, in the order of PROTOCOL's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from quiesce.lab.explorer.config import RETRY, TWIN, A, B, config
from quiesce.lab.mutants import receiver_changes as to_receiver
from quiesce.lab.mutants import sender_changes as to_sender
from quiesce.lab.mutants.mutant import always, checked, deaf, explored
from quiesce.lab.patches import Patch
from quiesce.protocol import (
    receiver,
    receiver_holds,
    receiver_rules,
    sender,
    sender_clocks,
    sender_ends,
    sender_hearing,
    sender_losses,
    sender_rules,
    sender_writes,
)
from quiesce.protocol.attempt import Phase
from quiesce.protocol.messages import Done
from quiesce.protocol.receiver_io import Timer

R, H, RR = receiver, receiver_holds, receiver_rules
S, E, SR, W = sender, sender_ends, sender_rules, sender_writes
C, L = sender_clocks, sender_losses


TIME = "a hand-off ends too early or too late by it, which is a matter of time: worlds and proof have none"


def failing(code: str) -> tuple[Patch, ...]:
    mutant = to_receiver.free_without_hold(code)
    return (R, "fail", mutant), (H, "fail", mutant)


ORPHANS: Any = {"arrivals": ((0, B),)}

SHARED = config(requests=(A, RETRY), pages=3, lease_pages=2, cache=True, abort=1)

HANDOFF = (
    checked(
        "1", "ABORT leaves before the hold is armed", "hold_comes_first", (R, "fail", to_receiver.abort_before_hold)
    ),
    checked("1", "an ack from before the hold counts", "early_ack_is_ignored", (RR, "may_count_ack", always)),
    explored("2", "client abort does not hold", "no_wild_write", config(abort=1), *failing("client_gone")),
    explored("2", "prefill's FAIL does not hold", "no_wild_write", config(fail=1), *failing("transfer_unknown")),
    explored("2", "deadline does not hold", "no_wild_write", config(clock=1), *failing("handoff_timeout")),
    explored("2", "lost stream does not hold", "no_wild_write", config(cut=1), *failing("stream_lost")),
    explored("2", "peer's new life does not hold", "no_wild_write", config(crash_p=1), *failing("prefill_restarted")),
    explored(
        "2",
        "failed verification does not hold",
        "no_wild_write",
        config(requests=(A,), prefills=2),
        *failing("coverage"),
        (RR, "may_verify", to_receiver.verify_first),
    ),
    explored(
        "3",
        "ranks that said no BOUND need not ack",
        "no_wild_write",
        config(abort=1),
        (RR, "counts_as_proof", to_receiver.unbound_needs_no_ack),
    ),
    explored(
        "3",
        "the first rank's proof releases",
        "no_wild_write",
        config(requests=(A,), prefills=2, abort=1),
        (RR, "proof_for", to_receiver.first_proof_suffices),
    ),
    explored(
        "3",
        "a rank that never heard of it stays silent",
        "no_leak",
        config(arrivals=(), abort=1, loss=1, heal=1),
        (S, "_abort", to_sender.silent_if_unknown),
    ),
    explored(
        "3",
        "ABORT is not re-sent",
        "no_leak",
        config(requests=(A,), abort=1, loss=2, clock=1, heal=1),
        (R, "_resend", deaf),
    ),
    explored(
        "4",
        "ack while writes are outstanding",
        "no_early_ack",
        config(abort=1),
        (SR, "may_ack", to_sender.ack_outstanding),
    ),
    explored(
        "4", "ack without marking the attempt aborted", "no_", config(abort=1), (S, "_abort", to_sender.ack_unmarked)
    ),
    checked(
        "4",
        "calls queued behind a failed one are launched",
        "failed_call_drops_queue",
        (W, "fail_request", to_sender.quiesced_goes_on),
    ),
    explored(
        "5",
        "failed_in_flight does not poison",
        "no_",
        config(fail=1, abort=1),
        (SR, "is_poisoned_by", to_sender.in_flight_is_quiesced),
    ),
    checked("5", "a poisoned attempt is acked", "poisoned_is_never_acked", (SR, "may_ack", to_sender.ack_poisoned)),
    replace(
        checked("5", "FAIL{poisoned} is said once", "poison_is_repeated", (SR, "to_repeat", to_sender.no_repeat)),
        world=config(requests=(A,), fail=1, clock=1, loss=1, fence=True, heal=1),
        symptom="no_leak",
    ),
    explored(
        "6",
        "one decode rank's proof releases the whole attempt",
        "no_wild_write",
        config(requests=(A,), ranks=2, abort=1),
        (RR, "proof_for", to_receiver.any_rank_suffices),
    ),
    explored(
        "7", "answers are matched by room", "no_", config(abort=1, copy=1), (R, "hear", to_receiver.matched_by_room)
    ),
    explored(
        "7",
        "an ack of the next life counts",
        "no_wild_write",
        config(crash_p=1, abort=1),
        (RR, "is_granted", to_receiver.granted_by_rank),
        (RR, "counts_as_proof", to_receiver.proof_by_rank),
        (SR, "is_addressed", always),
    ),
    checked("7", "an ack that admits outstanding writes counts", "honest_ack_only", (RR, "may_count_ack", always)),
    checked(
        "7",
        "a foreign rank's ack counts",
        "foreign_is_ignored",
        (RR, "is_granted", always),
        alone="proofs are looked up by destination, and a stranger is none: it is a second line, and what is counted",
    ),
    explored(
        "8",
        "re-PUBLISH to the next life forgets the old grant",
        "no_wild_write",
        config(crash_p=1, again=True),
        (R, "lose", to_receiver.publish_to_next_life),
    ),
    explored(
        "8",
        "commit after the first DONE (coverage off)",
        "read_own",
        config(requests=(A,), prefills=2, covered=False),
        (RR, "may_verify", to_receiver.verify_first),
    ),
    checked("8", "DONE is no proof", "done_is_an_ack", (RR, "counts_as_drained", to_receiver.acks_only)),
    checked(
        "8",
        "what prefill gave up is not remembered",
        "given_up_is_answered",
        (E, "give_up", to_sender.no_memory),
        (S, "give_up", to_sender.no_memory),
        alone="a PUBLISH that comes later waits for its deadline and ends all the same: it is a matter of time alone",
    ),
    explored(
        "9", "no tombstone after the ack", "no_", config(abort=1, copy=1), (E, "acknowledge", to_sender.ack_and_forget)
    ),
    explored(
        "9",
        "never heard of it: ack without tombstone",
        "no_",
        config(abort=1),
        (S, "_abort", to_sender.ack_without_tombstone),
    ),
    explored("9", "closed attempts are obeyed", "no_", config(abort=1, copy=1), (S, "hear", to_sender.accept_closed)),
    explored("9", "what is closed opens again", "no_", config(abort=1, copy=2), (SR, "merged", to_sender.not_monotone)),
    explored(
        "9",
        "held attempts are not listed as open",
        "no_",
        config(abort=1),
        (RR, "open_attempts", to_receiver.open_without(Phase.HOLDING)),
    ),
    explored(
        "9",
        "quarantined attempts are not listed as open",
        "no_",
        config(pages=2, fail=1, clock=1, resend=1, heal=5),
        (RR, "open_attempts", to_receiver.open_without(Phase.QUARANTINED)),
    ),
    checked(
        "9",
        "an attempt released by a clock is closed",
        "timeout_stays_open",
        (H, "release_without_proof", to_receiver.drop_at_timeout),
        alone="it matters under --unsafe-release-on-timeout only, where worlds and proof show harm in any case",
    ),
    explored(
        "9",
        "the record goes at COMMITTED",
        "no_",
        config(requests=(A, TWIN), copy=1),
        (S, "_committed", to_sender.drop_at_committed),
    ),
    explored(
        "9",
        "a lost stream forgets tombstones",
        "no_",
        config(abort=1, copy=1, cut=1),
        (L, "_lose_stream", to_sender.forget_with_stream),
    ),
    explored(
        "10, 11",
        "a late reject says DONE, and nobody looks at tags",
        "read_own",
        config(),
        (W, "computed", to_sender.done_at_once),
        (S, "computed", to_sender.done_at_once),
        (R, "verified", to_receiver.commit_anyway),
    ),
    explored(
        "12",
        "a hand-off is cached before it is verified",
        "no_poison",
        SHARED,
        (R, "_count_done", to_receiver.cache_unverified),
        (W, "computed", to_sender.done_at_once),
        (S, "computed", to_sender.done_at_once),
    ),
    explored(
        "12",
        "a failed hand-off is cached",
        "no_poison",
        SHARED,
        (R, "fail", to_receiver.cache_failed),
        (H, "fail", to_receiver.cache_failed),
    ),
    explored(
        "12",
        "the source of a failed request is cached",
        "no_poison",
        SHARED,
        *((room, "fail_request", to_sender.cache_failed_source) for room in (S, E, W, C, L, sender_hearing)),
    ),
    explored(
        "12",
        "a source is cached before it has landed",
        "no_poison",
        SHARED,
        (W, "computed", to_sender.cache_when_computed),
        (S, "computed", to_sender.cache_when_computed),
    ),
    explored(
        "13",
        "the source is free when the request ends",
        "no_wild_read",
        config(abort=1),
        (SR, "reads_source", to_sender.source_never_read),
    ),
    explored(
        "13",
        "the source is free at count zero, poisoned or not",
        "no_wild_read",
        config(fail=1),
        (SR, "reads_source", to_sender.source_by_count),
    ),
    explored(
        "14",
        "a decode rank decides alone (coverage off)",
        "read_own",
        config(requests=(A,), ranks=2, covered=False),
        (RR, "may_verify", to_receiver.verify_alone),
    ),
    explored("15", "released twice", "once", config(requests=(A,), ranks=2, abort=1), (RR, "may_release", always)),
    explored(
        "16",
        "a clock frees what is held",
        "no_wild_write",
        config(abort=1, clock=1),
        (H, "hold_expired", to_receiver.clock_frees),
        (R, "hold_expired", to_receiver.clock_frees),
    ),
    explored(
        "17",
        "no deadline for a PUBLISHed attempt, nor for an orphan",
        "no_leak",
        config(heal=1, **ORPHANS),
        (R, "_expire", to_receiver.deaf_clock(Timer.HANDOFF)),
        (C, "_orphaned", deaf),
    ),
    explored(
        "17",
        "no deadline for a request without its PUBLISH",
        "no_leak",
        config(requests=(A,), loss=1, heal=1, abort=1),
        (C, "_unpublished", deaf),
    ),
    explored(
        "17",
        "a late FAIL{poisoned} is not answered FENCED",
        "no_leak",
        config(requests=(A,), fail=1, clock=1, loss=1, fence=True, heal=2),
        (R, "_receive_about_nothing", to_receiver.ignore_finished(object)),
    ),
    checked(
        "17",
        "DONE of a finished attempt is not answered",
        "late_done_is_answered",
        (R, "_receive_about_nothing", to_receiver.ignore_finished(Done)),
        alone="prefill goes on saying DONE, and holds nothing any more: it is a nuisance, and no leak",
    ),
    checked("17", "PROGRESS is not heard", "progress_begins_the_clock_anew", (R, "progressed", deaf), alone=TIME),
    checked(
        "17",
        "one rank's PROGRESS speaks for a frozen one",
        "a_frozen_rank_has_no_advocate",
        (RR, "all_at_work", always),
        alone=TIME,
    ),
    checked(
        "17",
        "a prompt that waits for its turn is silent",
        "who_waits_for_its_turn_is_heard",
        (SR, "is_at_work", to_sender.is_sending),
        alone=TIME,
    ),
    checked("17", "what ended says PROGRESS", "what_ended_is_silent", (SR, "is_at_work", always), alone=TIME),
    explored("id", "PUBLISH is paired by room alone", "read_own", config(), (SR, "may_bind", to_sender.bind_by_room)),
    explored(
        "id", "messages for an earlier life count", "no_", config(crash_d=1, abort=1), (RR, "is_addressed", always)
    ),
    explored("id", "memory survives the decode life", "read_own|no_", config(crash_d=1, fresh=False)),
    explored(
        "3.",
        "the writer's death is a fence",
        "no_wild_write",
        config(crash_p=1),
        (R, "lose", to_receiver.death_is_a_fence),
    ),
)
