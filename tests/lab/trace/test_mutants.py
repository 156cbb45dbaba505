"""Every mutant of the machines that shows in a trace is seen in its trace, by the rule that it leaves out."""

from __future__ import annotations

import pytest

from quiesce.lab.explorer.config import A, Config, config
from quiesce.lab.explorer.search import explore
from quiesce.lab.mutants.handoff import HANDOFF
from quiesce.lab.mutants.pull import PULL
from quiesce.lab.mutants.registry import BY_NAME
from quiesce.lab.trace.replay import Verdict, judge
from quiesce.protocol import receiver_rules, sender_rules, trace
from tests.lab.trace.written import Choose, along, at_random, read, texts, way
from tests.proof.test_machines import ALL_WORLDS

STEPS = 60
WALKS = 3

SHOWN = {
    "client abort does not hold": "every_failure_holds",
    "prefill's FAIL does not hold": "every_failure_holds",
    "deadline does not hold": "every_failure_holds",
    "lost stream does not hold": "every_failure_holds",
    "peer's new life does not hold": "every_failure_holds",
    "failed verification does not hold": "every_failure_holds",
    "ranks that said no BOUND need not ack": "released_is_proved",
    "the first rank's proof releases": "released_is_proved",
    "ack while writes are outstanding": "ack_awaits_outstanding",
    "ack without marking the attempt aborted": "queue_is_dropped or ack_awaits_outstanding",
    "failed_in_flight does not poison": "poisoned_holds_source",
    "one decode rank's proof releases the whole attempt": "released_is_proved",
    "answers are matched by room": "released_is_proved",
    "an ack of the next life counts": "released_is_proved",
    "re-PUBLISH to the next life forgets the old grant": "grants_are_kept",
    "commit after the first DONE (coverage off)": "commit_awaits_every_grant",
    "no tombstone after the ack": "tombstones",
    "never heard of it: ack without tombstone": "tombstones",
    "closed attempts are obeyed": "closed_is_refused",
    "what is closed opens again": "closed_is_refused",
    "held attempts are not listed as open": "closed_is_over",
    "the record goes at COMMITTED": "tombstones",
    "a lost stream forgets tombstones": "tombstones",
    "a late reject says DONE, and nobody looks at tags": "coverage",
    "a hand-off is cached before it is verified": "only_committed_is_cached",
    "a failed hand-off is cached": "only_committed_is_cached",
    "the source of a failed request is cached": "only_committed_is_cached",
    "a source is cached before it has landed": "only_committed_is_cached",
    "the source is free when the request ends": "failed_holds_source",
    "the source is free at count zero, poisoned or not": "poisoned_holds_source",
    "a decode rank decides alone (coverage off)": "commit_awaits_every_grant",
    "released twice": "released_once",
    "a clock frees what is held": "no_clock_frees",
    "messages for an earlier life count": "released_is_proved",
    "the writer's death is a fence": "fence_was_proved",
    "pull: client abort does not hold": "every_failure_holds",
    "pull: deadline does not hold": "every_failure_holds",
    "pull: lender's new life does not hold": "every_failure_holds",
    "pull: ack while reads are outstanding": "ack_awaits_outstanding",
    "pull: failed_in_flight does not poison": "unknown_fate_poisons",
    "pull: a poisoned attempt is acked": "unknown_fate_poisons",
    "pull: one decode rank's reads speak for another's": "ack_awaits_outstanding",
    "pull: commit before every read is terminal (coverage off)": "commit_awaits_reads",
    "pull: held attempts are not listed as open": "closed_is_over",
    "pull: a failed read counts as landed, and nobody looks at tags": "coverage",
    "pull: lent pages are cached before they were read": "only_committed_is_cached",
    "pull: what was acked is cached": "only_committed_is_cached",
    "pull: lent pages are free when the request ends": "source_awaits_proof",
    "pull: a clock frees the lent pages": "taken_back_is_proved",
    "pull: a replaced reader's loan is taken back": "taken_back_is_proved",
    "pull: released twice": "released_once",
    "pull: what prefill revoked frees decode's page": "every_failure_holds",
}
ON_A_WALK = {
    "ABORT leaves before the hold is armed": ("abort_is_held", config(requests=(A,), abort=1), 4),
    "quarantined attempts are not listed as open": ("closed_is_over", config(pages=2, fail=1, clock=1, resend=1), 131),
}
"""The explorer looks at something else here (a check, a leak): the walk of this seed meets the line."""

NO_STEP_IS_WRONG = {
    "a rank that never heard of it stays silent",
    "ABORT is not re-sent",
    "no deadline for a PUBLISHed attempt, nor for an orphan",
    "no deadline for a request without its PUBLISH",
    "a late FAIL{poisoned} is not answered FENCED",
    "FAIL{poisoned} is said once",
    "pull: OFFER is said once",
    "pull: ABORT of a loan is said once",
    "pull: OFFER of what is over is not answered",
}
"""An answer, a re-send or a deadline is missing; each step that is taken is allowed. `no_leak` is the explorer's."""

IN_NO_LINE = {
    "memory survives the decode life",  # memory is in no line
    "PUBLISH is paired by room alone",  # digests are hidden: see the test
    "pull: ASK is paired by room alone, and any offer is read",  # so are they here
    "pull: memory survives the decode life",
    "pull: memory survives the prefill life",
    "pull: a revoked window still serves reads",  # what a transport did is in no line
}
LONG = {"messages for an earlier life count", "a lost stream forgets tombstones"}


@pytest.fixture(autouse=True)
def _finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_rules, "MAX_RESEND_ROUND", 0)
    monkeypatch.setattr(sender_rules, "MAX_RESEND_ROUND", 0)


def judged(world: Config, choose: Choose) -> Verdict:
    return judge(read(texts(way(world, choose, STEPS), trace.PUBLIC)), idle=True)


@pytest.mark.parametrize("world", ALL_WORLDS.values(), ids=ALL_WORLDS.keys())
def test_the_machines_take_steps_of_the_model(world: Config) -> None:
    for seed in range(WALKS):
        assert judged(world, at_random(seed)).breaches == [], seed


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SHOWN]
)
def test_a_mutant_is_seen_in_its_trace(name: str) -> None:
    mutant = BY_NAME[name]
    assert mutant.world is not None
    with mutant.applied():
        verdict = judged(mutant.world, along(explore(mutant.world, symmetry=False).trace))
    assert verdict.rules & set(SHOWN[name].split(" or "))


@pytest.mark.parametrize("name", ON_A_WALK)
def test_a_mutant_is_seen_on_a_walk(name: str) -> None:
    rule, world, seed = ON_A_WALK[name]
    with BY_NAME[name].applied():
        assert rule in judged(world, at_random(seed)).rules


def test_pairing_by_room_is_seen_where_digests_are_shown() -> None:
    mutant = BY_NAME["PUBLISH is paired by room alone"]
    assert mutant.world is not None
    with mutant.applied():
        path = way(mutant.world, along(explore(mutant.world, symmetry=False).trace), STEPS)
    assert judge(read(texts(path, trace.PUBLIC)), idle=True).breaches == []
    assert "digest_pairs" in judge(read(texts(path)), idle=True).rules


@pytest.mark.parametrize("name", sorted(NO_STEP_IS_WRONG))
def test_what_only_fails_to_happen_is_not_seen(name: str) -> None:
    mutant = BY_NAME[name]
    assert mutant.world is not None
    with mutant.applied():
        assert judged(mutant.world, along(explore(mutant.world, symmetry=False).trace)).breaches == []


def test_every_explored_mutant_is_here() -> None:
    explored = {mutant.name for mutant in (*HANDOFF, *PULL) if mutant.world is not None}
    assert explored <= {*SHOWN, *ON_A_WALK, *NO_STEP_IS_WRONG, *IN_NO_LINE}
