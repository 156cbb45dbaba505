"""Fair queueing for all orders of events that hypothesis thinks of: nobody starves, nobody idles, shares are shares."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.protocol import quota
from quiesce.protocol.fairness import Arrived, Disregarded, Left, Placed, Queue, Settled, Waiting, count, first, step
from tests.protocol import fair_checks
from tests.protocol.fair_checks import flood, place, run

WEIGHTS = {"a": 1, "b": 1, "c": 2, "d": 5}
MOST_TOKENS = 100

TENANTS = st.sampled_from(sorted(WEIGHTS))
TOKENS = st.integers(1, MOST_TOKENS)
ASKS = st.tuples(st.just("ask"), TENANTS, TOKENS, st.integers(-2, 2))
EVENTS = st.lists(st.one_of(ASKS, st.just(("place",)), st.tuples(st.just("leave"), st.integers(0, 200))), max_size=200)


@pytest.mark.parametrize("check", fair_checks.ALL, ids=lambda check: check.__name__)
def test_check_holds(check: object) -> None:
    assert callable(check)
    check()


class Model:
    """What is known without the queue: who waits, who was placed, and what each had since a moment."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.waiting: dict[int, tuple[str, Waiting]] = {}
        self.tickets = 0

    def play(self, event: tuple[object, ...]) -> tuple[str, Waiting] | None:
        match event:
            case ("ask", str(tenant), int(tokens), int(priority)):
                waiting = Waiting(self.tickets, tokens, priority)
                self.queue, effects = step(self.queue, Arrived(tenant, waiting, WEIGHTS[tenant]))
                assert effects == ()
                self.waiting[self.tickets] = (tenant, waiting)
                self.tickets += 1
            case ("leave", int(ticket)):
                tenant, _ = self.waiting.pop(ticket, ("a", None))
                self.queue, _ = step(self.queue, Left(tenant, ticket))
            case ("place",):
                return self.place()
        return None

    def place(self) -> tuple[str, Waiting] | None:
        head = first(self.queue)
        assert (head is None) == (not self.waiting), "somebody waits, and a place is left empty"
        if head is not None:
            assert self.waiting.pop(head[1].ticket) == head
            self.queue, effects = step(self.queue, Placed(head[0], head[1].ticket))
            assert effects == ()
        return head


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EVENTS)
def test_work_is_conserved_and_each_request_is_placed_once(events: list[tuple[object, ...]]) -> None:
    model = Model()
    for event in events:
        model.play(event)
        for tenant in WEIGHTS:
            assert count(model.queue, tenant) == sum(owner == tenant for owner, _ in model.waiting.values())
    while model.place() is not None:
        pass
    assert not any(flow.waiting for flow in model.queue.flows.values())


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EVENTS)
def test_within_a_tenant_priority_comes_first_and_then_arrival(events: list[tuple[object, ...]]) -> None:
    model = Model()
    for event in events:
        waiting = list(model.waiting.values())
        if head := model.play(event):
            mine = [each for owner, each in waiting if owner == head[0]]
            assert head[1] == min(mine, key=lambda each: (-each.priority, each.ticket))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EVENTS, TENANTS, TOKENS)
def test_a_tenant_that_comes_waits_for_at_most_one_request_of_each_other(
    events: list[tuple[object, ...]], comer: str, tokens: int
) -> None:
    """Whatever happened before, unless it had more than its share."""
    model = Model()
    for event in events:
        model.play(event)
    flow = model.queue.flows.get(comer)
    if flow is not None:
        return  # it waits already, or has had more than its share
    model.play(("ask", comer, tokens, 0))
    before: dict[str, int] = defaultdict(int)
    while (head := model.place()) is not None and head[0] != comer:
        before[head[0]] += 1
    assert head is not None
    assert all(times == 1 for times in before.values()), before


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EVENTS, st.lists(st.one_of(ASKS, st.just(("place",))), max_size=200))
def test_tenants_that_wait_all_the_time_share_by_weight(
    before: list[tuple[object, ...]], events: list[tuple[object, ...]]
) -> None:
    """Two tenants' tokens over their weights differ by at most one largest request of each: SFQ's bound."""
    model = Model()
    for event in before:
        model.play(event)
    had = {tenant: 0 for tenant in WEIGHTS if count(model.queue, tenant)}
    for event in events:
        if (head := model.play(event)) and head[0] in had:
            had[head[0]] += head[1].tokens
        had = {tenant: tokens for tenant, tokens in had.items() if count(model.queue, tenant)}
        for one in had:
            for other in had:
                bound = MOST_TOKENS / WEIGHTS[one] + MOST_TOKENS / WEIGHTS[other]
                assert abs(had[one] / WEIGHTS[one] - had[other] / WEIGHTS[other]) <= bound + 0.001


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(0, 500), st.integers(0, 500))
def test_what_was_settled_is_as_if_it_had_been_charged(charged: int, used: int) -> None:
    def after(tokens: int, *facts: Settled) -> Queue:
        queue = run(Queue(), *flood("a", range(3), tokens=tokens), *flood("b", range(10, 13)))
        return run(queue, Placed("a", 0), *facts)

    found = after(charged, Settled("a", charged, used)).flows["a"].reached
    assert found == after(used).flows["a"].reached


def test_who_fits_nowhere_now_does_not_keep_others_from_being_placed() -> None:
    queue = run(Queue(), *flood("a", range(2)), *flood("b", range(10, 12)))
    assert first(queue, frozenset({"a"})) == ("b", Waiting(10, 10))
    assert first(queue, frozenset({"a", "b"})) is None


def test_a_ticket_that_nobody_has_is_disregarded() -> None:
    queue = run(Queue(), *flood("a", range(2)))
    for fact in (Left("a", 7), Placed("a", 7), Left("x", 0), Placed("x", 0)):
        assert step(queue, fact) == (queue, (Disregarded(),))


def test_queues_are_values() -> None:
    queue = run(Queue(), *flood("a", range(2)))
    assert hash(queue) == hash(run(Queue(), *flood("a", range(2))))
    assert place(queue, 2)[1] == "aa"
    assert count(queue, "a") == 2


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50)), max_size=100),
)
def test_no_minute_has_more_than_twice_its_worth(per_minute: int, asks: list[tuple[float, int]]) -> None:
    """A full bucket at its begin, and what came in during it: the bound of any token bucket."""
    bucket, now_s, had = quota.full(per_minute, 0.0), 0.0, list[tuple[float, int]]()
    for pause_s, amount in asks:
        now_s += pause_s
        bucket, wait_s = quota.take(bucket, amount, now_s)
        if wait_s == 0.0:
            had.append((now_s, amount))
        elif wait_s <= quota.MINUTE_S:
            assert quota.take(bucket, amount, now_s + wait_s + 1e-6)[1] == 0.0
    for begin_s, _ in had:
        assert sum(amount for at_s, amount in had if begin_s <= at_s < begin_s + 60) <= 2 * per_minute


def test_more_than_a_minute_gives_is_never_there() -> None:
    assert quota.take(quota.full(10, 0.0), 11, 0.0)[1] == float("inf")


def test_a_new_limit_keeps_what_was_taken() -> None:
    bucket = quota.limited_to(quota.spend(quota.full(10, 0.0), 8), 100, 0.0)
    assert (bucket.per_minute, bucket.left) == (100, 92.0)
    assert quota.limited_to(bucket, 4, 0.0).left == -4.0


def test_a_bucket_is_full_again_when_it_says() -> None:
    bucket = quota.spend(quota.full(60, 0.0), 30)
    assert quota.reset_s(bucket) == pytest.approx(30.0)
    assert quota.reset_s(quota.filled(bucket, 30.0)) == 0.0


@pytest.mark.parametrize(
    ("waiting", "placed", "over_s", "expected"),
    [(10, 20, 10.0, 5), (10, 0, 10.0, 10), (0, 0, 1.0, 1), (1, 100, 1.0, 1), (10_000, 1, 60.0, 60)],
)
def test_when_to_come_back(waiting: int, placed: int, over_s: float, expected: int) -> None:
    assert quota.retry_after_s(waiting, placed, over_s) == expected
