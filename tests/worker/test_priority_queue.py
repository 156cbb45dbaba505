"""Higher priority first, then arrival; whoever leaves changes nobody else's place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.worker.priority_queue import PriorityQueue, rank_of

Moves = list[tuple[str, int]]
MOVES = st.lists(st.tuples(st.sampled_from(("put", "remove", "pop")), st.integers(-2, 2)), max_size=60)


@given(MOVES)
def test_it_serves_like_a_sorted_list(moves: Moves) -> None:
    """The model: a list in order of arrival that is searched for the highest priority, the earliest of equal ones."""
    queue: PriorityQueue[int, str] = PriorityQueue()
    model: list[tuple[int, int]] = []  # (key, priority) by arrival
    for key, (move, number) in enumerate(moves):
        if move == "put":
            queue.put(key, f"item {key}", number)
            model.append((key, number))
        elif move == "remove" and model:
            gone = model.pop(number % len(model))
            assert queue.remove(gone[0]) == f"item {gone[0]}"
        elif model:
            best = max(model, key=lambda entry: entry[1])  # max keeps the first of equal ones
            model.remove(best)
            assert queue.first == f"item {best[0]}"
            assert queue.pop_first() == f"item {best[0]}"
        served = sorted(model, key=lambda entry: -entry[1])  # sorted is stable
        assert list(queue) == [f"item {key}" for key, _ in served]
        assert len(queue) == len(model)


def test_equal_priorities_keep_the_order_of_arrival() -> None:
    queue: PriorityQueue[int, int] = PriorityQueue()
    keys = list(range(50))
    random.Random(3).shuffle(keys)
    for key in keys:
        queue.put(key, key)
    assert [queue.pop_first() for _ in keys] == keys


def test_who_comes_back_stands_behind() -> None:
    queue: PriorityQueue[str, str] = PriorityQueue()
    for key in "ab":
        queue.put(key, key)
    queue.remove("a")
    queue.put("a", "a")
    assert list(queue) == ["b", "a"]


def test_a_key_is_in_the_queue_once() -> None:
    queue: PriorityQueue[str, int] = PriorityQueue()
    queue.put("a", 1)
    with pytest.raises(KeyError):
        queue.put("a", 2, priority=5)
    assert list(queue) == [1]
    assert ("a" in queue, "b" in queue, queue.get("a"), queue.get("b")) == (True, False, 1, None)


def test_one_that_cannot_be_served_yet_is_passed_and_keeps_its_place() -> None:
    queue: PriorityQueue[str, str] = PriorityQueue()
    for key, priority in (("a", 0), ("b", 1), ("c", 0)):
        queue.put(key, key, priority)
    assert queue.first_that(lambda item: item != "b") == "a"
    assert queue.first_that(lambda item: False) is None
    assert list(queue) == ["b", "a", "c"]


def test_nobody_waits() -> None:
    queue: PriorityQueue[str, int] = PriorityQueue()
    assert queue.remove("a") is None
    with pytest.raises(IndexError):
        queue.pop_first()
    with pytest.raises(IndexError):
        _ = queue.first


def test_ranks_sort_as_requests_are_served() -> None:
    ranks = [rank_of(0, 1), rank_of(5, 2), rank_of(-1, 0), rank_of(0, 0)]
    assert sorted(ranks) == [rank_of(5, 2), rank_of(0, 0), rank_of(0, 1), rank_of(-1, 0)]
