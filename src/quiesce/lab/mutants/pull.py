"""Mutants of the two machines of pull, in the order of PROTOCOL's rules."""

from __future__ import annotations

from typing import Any

from quiesce.lab.explorer.config import RETRY, A, B, Config, config
from quiesce.lab.mutants import pull_changes as to_pull
from quiesce.lab.mutants import receiver_changes as to_receiver
from quiesce.lab.mutants import sender_changes as to_sender
from quiesce.lab.mutants.mutant import always, checked, deaf, explored, never
from quiesce.lab.patches import Patch
from quiesce.protocol import (
    lender,
    puller,
    puller_holds,
    puller_reads,
    puller_rules,
    receiver_rules,
    sender_clocks,
    sender_ends,
    sender_hearing,
    sender_losses,
    sender_rules,
)
from quiesce.protocol.attempt import Phase

P, PR, RULES, RR = puller, puller_reads, puller_rules, receiver_rules
L, C, SR = lender, sender_clocks, sender_rules


def pulled(**given: Any) -> Config:
    """Two requests in turn, whose pages are the same ones at both ends."""
    return config(pull=True, sources=1, **given)


def failing(code: str) -> tuple[Patch, ...]:
    mutant = to_pull.free_without_hold(code)
    return (P, "fail", mutant), (PR, "fail", mutant)


PULL = (
    checked(
        "1",
        "pull: prefill hears of a failure before it is held",
        "a_hold_comes_before_what_is_said_of_it",
        (P, "fail", to_pull.said_before_held),
    ),
    checked(
        "1",
        "pull: OFFER leaves before its window is open",
        "a_window_opens_before_the_offer",
        (L, "lend", to_pull.offer_first),
    ),
    explored("2", "pull: client abort does not hold", "no_wild_write", pulled(abort=1), *failing("client_gone")),
    explored("2", "pull: deadline does not hold", "no_wild_write", pulled(clock=1), *failing("handoff_timeout")),
    explored(
        "2", "pull: lender's new life does not hold", "no_wild_write", pulled(crash_p=1), *failing("prefill_restarted")
    ),
    explored("4", "pull: ack while reads are outstanding", "no_early_ack", pulled(abort=1), (RULES, "is_idle", always)),
    checked(
        "4",
        "pull: an attempt that ended goes on launching reads",
        "a_failed_attempt_launches_no_read",
        (puller_holds, "_hold", to_pull.hold_and_go_on),
        (RULES, "may_launch", to_pull.launch_after_all),
        (PR, "settle", to_pull.settle_and_go_on),
    ),
    explored("5", "pull: failed_in_flight does not poison", "no_", pulled(fail=1), (RULES, "is_poisoned_by", never)),
    explored("5", "pull: a poisoned attempt is acked", "no_", pulled(fail=1), (RULES, "is_poisoned", never)),
    explored(
        "6",
        "pull: one decode rank's reads speak for another's",
        "no_",
        config(pull=True, requests=(A,), ranks=2, abort=1),
        (RULES, "is_idle", to_pull.idle_anywhere),
    ),
    explored(
        "8",
        "pull: commit before every read is terminal (coverage off)",
        "no_|read_own",
        pulled(covered=False),
        (RULES, "may_verify", to_pull.verify_first),
    ),
    explored(
        "9",
        "pull: held attempts are not listed as open",
        "no_wild_read",
        pulled(abort=1),
        (RR, "open_attempts", to_receiver.open_without(Phase.HOLDING)),
    ),
    checked(
        "9",
        "pull: no tombstone after ABORT_ACK",
        "what_ended_is_not_asked_for_again",
        (L, "_acked", to_pull.forget_when_acked),
        alone="a late ASK is computed for nobody: its OFFER is answered FENCED, and nothing was ever read",
    ),
    explored(
        "11",
        "pull: a failed read counts as landed, and nobody looks at tags",
        "read_own",
        pulled(quiesced=1),
        (PR, "fail", to_pull.count_as_read),
        (P, "verified", to_receiver.commit_anyway),
    ),
    explored(
        "12",
        "pull: lent pages are cached before they were read",
        "no_poison",
        pulled(),
        (L, "_computed", to_pull.cache_when_computed),
    ),
    explored(
        "12", "pull: what was acked is cached", "no_poison", pulled(abort=1), (L, "_acked", to_pull.cache_when_returned)
    ),
    explored(
        "13",
        "pull: lent pages are free when the request ends",
        "no_wild_read",
        pulled(ended=1),
        (SR, "reads_source", to_sender.source_never_read),
    ),
    explored(
        "13",
        "pull: a clock frees the lent pages",
        "no_wild_read",
        pulled(clock=1),
        (C, "_lent_too_long", to_pull.clock_takes_back),
    ),
    explored(
        "3.",
        "pull: a replaced reader's loan is taken back",
        "no_wild_read",
        pulled(rumour=1),
        (L, "lose", to_pull.replaced_is_dead),
    ),
    explored(
        "15",
        "pull: released twice",
        "once",
        config(pull=True, requests=(A,), ranks=2, abort=1),
        (RR, "may_release", always),
    ),
    explored(
        "17",
        "pull: OFFER is said once",
        "no_leak",
        config(pull=True, requests=(A,), loss=1, abort=1, heal=1),
        (SR, "to_repeat", to_sender.no_repeat),
    ),
    explored(
        "17",
        "pull: ABORT of a loan is said once",
        "no_leak",
        config(pull=True, requests=(A,), loss=1, ended=1, abort=1, heal=1),
        (sender_ends, "withdraw", to_pull.silent_about_loans),
        (sender_hearing, "withdraw", to_pull.silent_about_loans),
        (sender_losses, "withdraw", to_pull.silent_about_loans),
    ),
    explored(
        "17",
        "pull: OFFER of what is over is not answered",
        "no_leak",
        config(pull=True, requests=(A,), loss=1, abort=1, heal=1),
        (P, "_receive_about_nothing", to_pull.ignore_what_is_over),
    ),
    checked(
        "17",
        "pull: no deadline for a loan",
        "lent_pages_are_held_until_a_proof",
        (C, "_lent_too_long", deaf),
        alone="decode ends it in its own time, and then says so: it is a matter of time",
    ),
    explored(
        "6.",
        "pull: what prefill revoked frees decode's page",
        "no_wild_write",
        pulled(ended=1, revoke=True),
        (P, "_ended_there", to_pull.prefills_word_frees),
    ),
    explored(
        "6.", "pull: a revoked window still serves reads", "read_own", pulled(ended=1, revoke=True, refuses=False)
    ),
    explored(
        "id",
        "pull: ASK is paired by room alone, and any offer is read",
        "read_own",
        pulled(),
        (SR, "may_bind", to_sender.bind_by_room),
        (RR, "tells_own_content", always),
    ),
    explored(
        "id",
        "pull: memory survives the decode life",
        "read_own|no_",
        config(pull=True, sources=2, crash_d=1, fresh=False),
    ),
    explored(
        "id",
        "pull: memory survives the prefill life",
        "read_own|no_",
        pulled(crash_p=1, fresh=False, again=True, requests=(A, B, RETRY)),
    ),
)
