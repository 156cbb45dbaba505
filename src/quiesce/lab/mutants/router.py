"""Mutants of the router's machines: doors, pairing, fair queues, quotas and breakers."""

from __future__ import annotations

from quiesce.lab.mutants import router_changes as to_router
from quiesce.lab.mutants.mutant import always, checked, never
from quiesce.protocol import admission, breaker, fairness, pairing, quota

ROUTER = (
    checked(
        "10", "decode's door does not look", "door_rejects", (admission, "admit_decode", to_router.unchecked_decode)
    ),
    checked(
        "10",
        "absent max_tokens is rejected",
        "door_clips",
        (admission, "admit_decode", to_router.reject_absent_max_tokens),
    ),
    checked("5.", "the other half is not told", "halves_die_together", (pairing, "_cancel", to_router.cancel_nobody)),
    checked("5.", "a retry after the first token", "no_retry_after_first_token", (pairing, "may_retry", always)),
    checked("5.", "no retry of what is kept", "kept_answers_may_be_retried", (pairing, "may_retry", never)),
    *(
        checked("fair", name, check, (fairness, rule, mutant))
        for name, check, rule, mutant in (
            ("a flood fills everybody's queue", "each_tenant_has_its_own_queue", "may_wait", always),
            ("idle time is saved up", "idleness_is_not_saved_up", "is_even", never),
            ("who was forgotten owes nothing", "debts_outlive_being_forgotten", "_flow", to_router.from_nothing),
            ("a newcomer begins at 0", "newcomer_gets_no_more_than_its_share", "_flow", to_router.from_nothing),
            ("a newcomer waits for the flood", "newcomer_is_next", "first", to_router.oldest_first),
            ("the latest comes first", "priority_orders_one_tenant", "goes_before", to_router.latest_first),
            ("priorities do not matter", "priority_orders_one_tenant", "goes_before", to_router.by_arrival),
            ("priorities are shares", "priority_is_no_share", "first", to_router.highest_first),
            ("weights do not matter", "weight_counts", "charged", to_router.unweighted),
            ("requests count, not tokens", "tokens_count", "charged", to_router.by_request),
            ("who left is charged", "who_left_is_not_charged", "_taken_out", to_router.all_are_charged),
            ("long answers cost nothing", "long_answers_are_charged", "settled", to_router.never_settled),
            ("short answers cost all", "short_answers_are_given_back", "settled", to_router.never_settled),
            ("debts are forgotten", "debts_outlive_an_empty_queue", "is_even", to_router.nothing_waits),
            ("everybody is remembered", "even_tenants_are_forgotten", "is_even", never),
        )
    ),
    *(
        checked("quota", name, check, (quota, rule, mutant))
        for name, check, rule, mutant in (
            ("a bucket never fills", "a_minute_is_a_minute", "filled", to_router.unfilled),
            ("what is refused is taken", "a_minute_is_a_minute", "take", to_router.take_anyway),
            ("unused minutes are saved up", "unused_minutes_are_not_saved_up", "filled", to_router.overfilled),
            ("debts cost nothing", "what_is_owed_is_waited_for", "spend", to_router.no_debt),
        )
    ),
    checked("breaker", "one tenant's failures open", "one_tenant_opens_no_breaker", (breaker, "is_proof", always)),
    checked("breaker", "a prompt counts each time", "a_prompt_counts_once", (breaker, "counts", always)),
    checked("breaker", "a client's success closes", "only_a_probe_closes", (breaker, "admits", always)),
    checked(
        "breaker",
        "no probe follows one that said nothing",
        "an_open_breaker_is_probed_again",
        (breaker, "_probe_ended", to_router.nothing_follows),
    ),
    checked("breaker", "full queues count", "clients_open_no_breaker", (breaker, "blamed", to_router.blamed_by_fault)),
    checked("breaker", "waiting for room counts", "clients_open_no_breaker", (breaker, "ORDERLY", to_router.NO_ORDER)),
)
