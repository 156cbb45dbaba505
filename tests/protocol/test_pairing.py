"""The router's two halves: whoever learns first tells the other, the client hears of one end, retries are rare."""

from __future__ import annotations

import itertools

from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.pairing import (
    ENDED,
    Answered,
    CallOff,
    CancelHalf,
    Candidate,
    ClientLeft,
    Disregarded,
    GaveUp,
    Half,
    HalfAccepted,
    HalfFailed,
    HandOffDone,
    Side,
    Stopped,
    TokensCame,
    Try,
    TryFact,
    choose,
    half,
    start,
    step,
)
from tests.protocol.scene import BROKEN, GONE

STOP = Failure("stop", "A stop string matched.", Fault.CLIENT, 499)
FACTS: tuple[TryFact, ...] = (
    HalfAccepted(Side.PREFILL),
    HalfAccepted(Side.DECODE),
    HalfFailed(Side.PREFILL, BROKEN),
    HalfFailed(Side.DECODE, BROKEN),
    HalfFailed(Side.DECODE, GONE),
    TokensCame(),
    TokensCame(last=True),
    HandOffDone(),
    Stopped(STOP),
    CallOff(GONE),
    ClientLeft(GONE),
)


def run(*facts: TryFact) -> tuple[Try, tuple[object, ...]]:
    state = start()
    said: list[object] = []
    for fact in facts:
        state, effects = step(state, fact)
        said += effects
    return state, tuple(said)


def test_the_usual_way() -> None:
    accepted = (HalfAccepted(Side.PREFILL), HalfAccepted(Side.DECODE))
    state, said = run(*accepted, HandOffDone(), TokensCame(), TokensCame(), TokensCame(last=True))
    assert said == (Answered(),)
    assert state == Try(Half.DONE, Half.DONE, over=True)


def test_answer_may_overtake_the_report_of_prefill() -> None:
    _, said = run(TokensCame(), TokensCame(last=True), HandOffDone())
    assert said == (Answered(), Disregarded())


def test_rejection_by_the_clients_fault_is_not_tried_again() -> None:
    _, said = run(HalfFailed(Side.DECODE, GONE))
    assert said == (CancelHalf(Side.PREFILL, GONE), GaveUp(GONE, may_retry=False))


def test_failure_before_the_first_token_may_be_tried_again() -> None:
    _, said = run(HalfAccepted(Side.DECODE), HalfFailed(Side.PREFILL, BROKEN))
    assert said == (CancelHalf(Side.DECODE, BROKEN), GaveUp(BROKEN, may_retry=True))


def test_prefill_that_is_done_is_not_cancelled() -> None:
    _, said = run(HandOffDone(), HalfFailed(Side.DECODE, BROKEN))
    assert said == (GaveUp(BROKEN, may_retry=True),)


def test_prefills_failure_does_not_matter_once_decode_streams() -> None:
    state, said = run(TokensCame(), HalfFailed(Side.PREFILL, BROKEN), TokensCame(last=True))
    assert said == (Answered(),)
    assert state.over


def test_prefills_second_failure_is_disregarded() -> None:
    _, said = run(TokensCame(), HalfFailed(Side.PREFILL, BROKEN), HalfFailed(Side.PREFILL, BROKEN))
    assert said == (Disregarded(),)


def test_client_gone_cancels_both_and_is_never_tried_again() -> None:
    _, said = run(HalfAccepted(Side.PREFILL), CallOff(GONE))
    assert said == (CancelHalf(Side.PREFILL, GONE), CancelHalf(Side.DECODE, GONE), GaveUp(GONE, may_retry=False))


BOTH_CANCELLED = (CancelHalf(Side.PREFILL, GONE), CancelHalf(Side.DECODE, GONE), GaveUp(GONE, may_retry=False))


def test_after_handoff_a_client_that_left_ends_at_the_commit() -> None:
    """Prefill's word is not enough: decode has verified nothing yet."""
    state, said = run(HalfAccepted(Side.PREFILL), ClientLeft(GONE), HandOffDone())
    assert (said, state.over) == ((), False)
    assert step(state, TokensCame())[1] == (CancelHalf(Side.DECODE, GONE), GaveUp(GONE, may_retry=False))
    assert run(TokensCame(), ClientLeft(GONE))[1] == BOTH_CANCELLED


def test_after_handoff_failures_and_deadlines_end_it_as_ever() -> None:
    state, _ = run(ClientLeft(GONE))
    assert step(state, ClientLeft(GONE))[1] == (Disregarded(),)
    assert step(state, CallOff(GONE))[1] == BOTH_CANCELLED
    assert step(state, HalfFailed(Side.PREFILL, BROKEN))[1] == (
        CancelHalf(Side.DECODE, BROKEN),
        GaveUp(BROKEN, may_retry=False),
    )
    assert step(state, TokensCame(last=True))[1] == (Answered(),)


def test_stop_string_ends_well() -> None:
    _, said = run(TokensCame(), Stopped(STOP))
    assert said == (CancelHalf(Side.DECODE, STOP), Answered())


def test_acceptance_is_counted_once() -> None:
    _, said = run(HalfAccepted(Side.PREFILL), HalfAccepted(Side.PREFILL))
    assert said == (Disregarded(),)


def test_every_order_of_facts_ends_once_and_leaves_no_half_alone() -> None:
    """Exhaustive over all sequences of four facts: one end, both halves over with it or told, silence after it."""
    for facts in itertools.product(FACTS, repeat=4):
        state, said = run(*facts)
        ends = [effect for effect in said if isinstance(effect, Answered | GaveUp)]
        assert len(ends) == int(state.over)
        if state.over:
            assert all(half(state, side) in ENDED for side in Side), facts
        streamed = any(isinstance(fact, TokensCame) for fact in facts[: _end_of(facts)])
        nobody = streamed or state.leaving is not None
        assert not (nobody and any(isinstance(end, GaveUp) and end.may_retry for end in ends))


def _end_of(facts: tuple[TryFact, ...]) -> int:
    state = start()
    for index, fact in enumerate(facts):
        state, _ = step(state, fact)
        if state.over:
            return index
    return len(facts)


def test_choice_is_the_least_loaded_pair() -> None:
    decodes = [Candidate("d0", 3, ("p0", "p1")), Candidate("d1", 1, ("p0", "p1"))]
    assert choose(decodes, [Candidate("p0", 2), Candidate("p1", 1)], turn=0) == ("p1", "d1")


def test_ties_go_round() -> None:
    decodes = [Candidate("d1", 0, ("p0", "p1")), Candidate("d0", 0, ("p0", "p1"))]
    prefills = [Candidate("p1", 0), Candidate("p0", 0)]
    assert [choose(decodes, prefills, turn) for turn in range(3)] == [("p0", "d0"), ("p1", "d1"), ("p0", "d0")]


def test_only_connected_workers_are_paired() -> None:
    decodes = [Candidate("d0", 0, ("p9",)), Candidate("d1", 7, ("p1",))]
    assert choose(decodes, [Candidate("p0", 0), Candidate("p1", 5)], turn=0) == ("p1", "d1")
    assert choose([Candidate("d0", 0, ("p9",))], [Candidate("p0", 0)], turn=0) is None
    assert choose([], [Candidate("p0", 0)], turn=0) is None


def test_a_warm_worker_may_be_a_little_busier() -> None:
    def chosen(load: int, warmth: float) -> tuple[str, str] | None:
        partners = ("p0", "p1")
        decodes = [Candidate("d0", 0, partners), Candidate("d1", load, partners, warmth)]
        return choose(decodes, [Candidate("p0", 0), Candidate("p1", load, warmth=warmth)], turn=0)

    assert chosen(1, 1.0) == ("p1", "d1")
    assert chosen(0, 0.1) == ("p1", "d1")
    assert chosen(1, 0.4) == ("p0", "d0")
    assert chosen(3, 1.0) == ("p0", "d0")
