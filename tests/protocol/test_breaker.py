"""Circuit breakers: what counts, who opens them, and that time alone neither opens nor closes one."""

from __future__ import annotations

import itertools

import pytest

from quiesce.protocol import breaker
from quiesce.protocol.breaker import (
    Breaker,
    BreakerFact,
    Cause,
    Failed,
    Moved,
    Phase,
    ProbeBegan,
    ProbeEnded,
    ProbeFailed,
    ProbePassed,
    Served,
    WantProbe,
    admits,
    blamed,
)
from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.pairing import Side

ENOUGH = 3
A, B = "tenant a", "tenant b"
BOTH = (Side.PREFILL, Side.DECODE)


def failed(number: int, tenant: str = A) -> Failed:
    return Failed(Cause(tenant, f"prompt {number}"))


def run(*facts: BreakerFact, state: Breaker | None = None) -> tuple[Breaker, list[object]]:
    state, said = state or Breaker(), list[object]()
    for fact in facts:
        state, effects = breaker.step(state, fact, ENOUGH)
        said += effects
    return state, said


def test_failures_of_one_tenant_ask_for_a_probe_and_no_more() -> None:
    state, said = run(*(failed(number) for number in range(20)))
    assert said == [Moved(Phase.SUSPECTED), WantProbe(0)]
    assert admits(state)


def test_the_probe_decides() -> None:
    suspected, _ = run(failed(1), failed(2), failed(3))
    assert run(ProbeBegan(), ProbePassed(), state=suspected) == (Breaker(), [Moved(Phase.CLOSED)])
    opened, said = run(ProbeBegan(), ProbeFailed(), state=suspected)
    assert said == [Moved(Phase.OPEN), WantProbe(1)]
    assert not admits(opened)


def test_failures_of_several_tenants_open_at_once() -> None:
    state, said = run(failed(1, A), failed(2, B), failed(3, A))
    assert said == [Moved(Phase.OPEN), WantProbe(0)]
    assert not admits(state)
    _, said = run(failed(1), failed(2), failed(3), failed(4, B))
    assert said == [Moved(Phase.SUSPECTED), WantProbe(0), Moved(Phase.OPEN), WantProbe(0)]


def test_failures_must_be_in_a_row() -> None:
    state, said = run(failed(1), failed(2), Served(), failed(3), failed(4))
    assert (state.phase, said) == (Phase.CLOSED, [])


def test_a_prompt_counts_once() -> None:
    state, said = run(*[failed(1)] * 10, failed(2))
    assert (state.phase, said) == (Phase.CLOSED, [])


def test_an_open_breaker_is_closed_by_a_probe_only() -> None:
    opened, _ = run(failed(1, A), failed(2, B), failed(3))
    assert run(Served(), failed(4), state=opened) == (opened, [])
    half_open, said = run(ProbeBegan(), state=opened)
    assert said == [Moved(Phase.HALF_OPEN)]
    assert not admits(half_open)
    assert run(Served(), failed(4), state=half_open) == (half_open, [])
    assert run(ProbePassed(), state=half_open) == (Breaker(), [Moved(Phase.CLOSED)])


def test_probes_come_later_each_time() -> None:
    again: list[BreakerFact] = [ProbeBegan(), ProbeFailed()] * 3
    state, said = run(ProbeFailed(), *again)
    assert [effect.round for effect in said if isinstance(effect, WantProbe)] == [1, 2, 3, 4]
    assert state.phase is Phase.OPEN


def test_a_probe_that_says_nothing_is_repeated() -> None:
    suspected, _ = run(failed(1), failed(2), failed(3))
    assert run(ProbeBegan(), ProbeEnded(), state=suspected) == (suspected, [WantProbe(1)])
    opened, _ = run(ProbeFailed(), ProbeFailed())
    assert run(ProbeBegan(), ProbeEnded(), state=opened) == (
        opened,
        [Moved(Phase.HALF_OPEN), Moved(Phase.OPEN), WantProbe(2)],
    )
    assert run(ProbeBegan(), ProbeEnded()) == (Breaker(), [])


FACTS: tuple[BreakerFact, ...] = (
    *(failed(1, A), failed(2, A), failed(3, A), failed(4, B)),
    *(Served(), ProbeBegan(), ProbePassed(), ProbeFailed(), ProbeEnded()),
)


def test_nobody_is_locked_out_for_ever() -> None:
    """Exhaustive over all sequences of five facts: who is not closed has a probe due or under way; a probe closes."""
    for facts in itertools.product(FACTS, repeat=5):
        state, due = Breaker(), False
        for fact in facts:
            before = state.phase
            state, effects = breaker.step(state, fact, ENOUGH)
            due = any(isinstance(effect, WantProbe) for effect in effects) or (due and state.phase is not Phase.CLOSED)
            assert due == (state.phase is not Phase.CLOSED), facts
            assert [effect.phase for effect in effects if isinstance(effect, Moved)] == (
                [state.phase] if state.phase is not before else []
            )
            if before in (Phase.OPEN, Phase.HALF_OPEN) and admits(state):
                assert isinstance(fact, ProbePassed)
            if state.phase is Phase.OPEN and before in (Phase.CLOSED, Phase.SUSPECTED):
                assert isinstance(fact, ProbeFailed) or breaker.is_proof(state.causes)
            assert len(state.causes) <= ENOUGH + 1
        assert breaker.step(state, ProbePassed(), ENOUGH)[0] == Breaker()


@pytest.mark.parametrize(
    ("failure", "sides"),
    [
        (Failure("compute_failed", "", Fault.PREFILL), (Side.PREFILL,)),
        (Failure("worker_lost", "", Fault.DECODE, 502), (Side.DECODE,)),
        (Failure("transfer_failed", "", Fault.TRANSPORT), BOTH),
        (Failure("stream_lost", "", Fault.DECODE, 503), BOTH),
        (Failure("handoff_timeout", "", Fault.PREFILL, 504), BOTH),
        (Failure("compute_failed", "", Fault.QUIESCE), (Side.DECODE,)),
        (Failure("client_closed_request", "", Fault.CLIENT, 499), ()),
        (Failure("deadline_exceeded", "", Fault.CLIENT, 504), ()),
        (Failure("context_length_exceeded", "", Fault.DECODE, 400), ()),
        (Failure("queue_full", "", Fault.PREFILL, 429), ()),
        (Failure("internal_error", "", Fault.ROUTER, 500), ()),
        (Failure("handoff_timeout", "", Fault.ROUTER, 504), ()),
        (Failure("worker_draining", "", Fault.QUIESCE, 503), ()),
        (Failure("no_lease", "", Fault.DECODE, 503), ()),
        (Failure("pool_quarantined", "", Fault.DECODE, 503), ()),
        (Failure("aborted", "", Fault.DECODE, 503), ()),
    ],
    ids=lambda value: f"{value.code}-{value.fault}" if isinstance(value, Failure) else None,
)
def test_who_is_to_blame(failure: Failure, sides: tuple[Side, ...]) -> None:
    assert blamed(failure) == sides
