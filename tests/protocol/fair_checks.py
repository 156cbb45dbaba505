"""Checks of single rules of fair queueing and of quotas; each is a test, and kills mutants of its rule."""

from __future__ import annotations

import pytest

from quiesce.protocol import fairness, quota
from quiesce.protocol.fairness import (
    SCALE,
    Arrived,
    Fact,
    Left,
    Placed,
    Queue,
    Refused,
    Settled,
    Waiting,
    count,
    step,
)


def run(queue: Queue, *facts: Fact) -> Queue:
    for fact in facts:
        queue, _ = step(queue, fact)
    return queue


def flood(tenant: str, tickets: range, tokens: int = 10, weight: int = 1) -> list[Fact]:
    return [Arrived(tenant, Waiting(ticket, tokens), weight) for ticket in tickets]


def place(queue: Queue, times: int) -> tuple[Queue, str]:
    """Place so many requests; the tenants in that order, by their (one-letter) names."""
    order = ""
    for _ in range(times):
        head = fairness.first(queue)
        assert head is not None
        order += head[0]
        queue = run(queue, Placed(head[0], head[1].ticket))
    return queue, order


def newcomer_is_next() -> None:
    """A flood makes a newcomer wait for nothing but what is placed already."""
    queue, _ = place(run(Queue(), *flood("a", range(200))), 8)
    queue = run(queue, Arrived("b", Waiting(500, 10)))
    assert place(queue, 3)[1] == "baa"


def newcomer_gets_no_more_than_its_share() -> None:
    """What the others were served before it came is not owed to it."""
    queue, _ = place(run(Queue(), *flood("a", range(200))), 100)
    queue = run(queue, *flood("b", range(500, 600)))
    assert place(queue, 20)[1].count("a") >= 9


def idleness_is_not_saved_up() -> None:
    """Who was here before, and had nothing to ask while others were served, begins where they are."""
    queue, _ = place(run(Queue(), *flood("b", range(1)), *flood("a", range(1, 200))), 101)
    queue = run(queue, *flood("b", range(500, 600)))
    assert place(queue, 20)[1].count("a") >= 9


def weight_counts() -> None:
    queue = run(Queue(), *flood("a", range(100), weight=3), *flood("b", range(100, 200), weight=1))
    assert place(queue, 40)[1].count("a") == 30


def tokens_count() -> None:
    """One request of 90 tokens is as much as nine of 10."""
    queue = run(Queue(), *flood("a", range(100), tokens=90), *flood("b", range(100, 400), tokens=10))
    assert place(queue, 100)[1].count("a") == 10


def priority_orders_one_tenant() -> None:
    facts = [Arrived("a", Waiting(ticket, 10, priority)) for ticket, priority in enumerate((0, 5, -1, 5, 0))]
    queue, tickets = run(Queue(), *facts), []
    while head := fairness.first(queue):
        tickets.append(head[1].ticket)
        queue = run(queue, Placed(head[0], head[1].ticket))
    assert tickets == [1, 3, 0, 4, 2]


def priority_is_no_share() -> None:
    """However high one tenant's priorities are, another one has its turn."""
    queue = run(Queue(), *[Arrived("a", Waiting(ticket, 10, 99)) for ticket in range(50)], *flood("b", range(50, 100)))
    assert place(queue, 20)[1].count("b") == 10


def each_tenant_has_its_own_queue() -> None:
    queue, effects = step(run(Queue(), *flood("a", range(3))), Arrived("a", Waiting(9, 10), most=3))
    assert effects == (Refused(9),)
    assert count(queue, "a") == 3
    queue, effects = step(queue, Arrived("b", Waiting(10, 10), most=3))
    assert effects == ()
    queue, effects = step(queue, Arrived("a", Waiting(11, 10), most=None))
    assert (count(queue, "a"), count(queue, "b"), effects) == (4, 1, ())


def who_left_is_not_placed() -> None:
    queue = run(Queue(), *flood("a", range(2)), Left("a", 0))
    assert fairness.first(queue) == ("a", Waiting(1, 10))
    assert fairness.first(run(queue, Left("a", 1))) is None


def who_left_is_not_charged() -> None:
    queue = run(
        Queue(), *flood("a", range(10)), *flood("b", range(10, 20)), *(Left("a", ticket) for ticket in range(9))
    )
    assert place(queue, 2)[1] == "ab"


def long_answers_are_charged() -> None:
    """What a request took beyond what was expected keeps its tenant back."""
    queue, _ = place(run(Queue(), *flood("a", range(50)), *flood("b", range(50, 100))), 2)
    assert place(run(queue, Settled("a", 10, 60)), 7)[1] == "bbbbbab"


def short_answers_are_given_back() -> None:
    queue, _ = place(run(Queue(), *flood("a", range(50), tokens=60), *flood("b", range(50, 100), tokens=10)), 2)
    assert place(run(queue, Settled("a", 60, 10)), 2)[1] == "ab"


def debts_outlive_an_empty_queue() -> None:
    """Who had much and asks again at once is not a newcomer."""
    queue, _ = place(run(Queue(), *flood("a", range(1)), *flood("b", range(1, 100))), 2)
    queue = run(queue, Settled("a", 10, 60), *flood("a", range(100, 150)))
    assert place(queue, 7)[1] == "bbbbbba"


def debts_outlive_being_forgotten() -> None:
    """Its answer was still coming when everybody else had passed it."""
    queue, _ = place(run(Queue(), *flood("a", range(1)), *flood("b", range(1, 100))), 31)
    assert set(queue.flows) == {"b"}
    queue = run(queue, Settled("a", 10, 60), *flood("a", range(100, 150)))
    assert "a" not in place(queue, 5)[1]


def even_tenants_are_forgotten() -> None:
    """A queue that is empty and owes nothing remembers nobody."""
    queue, _ = place(run(Queue(), *flood("a", range(3)), *flood("b", range(10, 13))), 6)
    queue = run(queue, Settled("a", 30, 0), Settled("b", 30, 0), *flood("c", range(20, 30), tokens=100))
    queue, _ = place(queue, 10)
    assert set(queue.flows) == {"c"}
    assert queue.reached == 920 * SCALE


def a_minute_is_a_minute() -> None:
    """60 at once, then one a second; nothing is taken of what is refused."""
    bucket = quota.full(60, 100.0)
    bucket, wait_s = quota.take(bucket, 60, 100.0)
    assert wait_s == 0.0
    bucket, wait_s = quota.take(bucket, 1, 100.5)
    assert wait_s == pytest.approx(0.5)
    bucket, wait_s = quota.take(bucket, 1, 101.0)
    assert wait_s == 0.0
    assert quota.take(bucket, 1, 101.0)[1] == pytest.approx(1.0)


def unused_minutes_are_not_saved_up() -> None:
    bucket, _ = quota.take(quota.full(60, 0.0), 60, 100_000.0)
    assert quota.take(bucket, 1, 100_000.0)[1] == pytest.approx(1.0)


def what_is_owed_is_waited_for() -> None:
    bucket = quota.spend(quota.full(60, 0.0), 90)
    assert quota.take(bucket, 1, 0.0)[1] == pytest.approx(31.0)
    assert quota.take(bucket, 1, 31.0)[1] == 0.0


ALL = tuple(
    check
    for name, check in sorted(globals().items())
    if callable(check) and getattr(check, "__module__", "") == __name__ and name not in ("run", "flood", "place")
)
