"""Simulated time: what is due at one time keeps its order."""

from __future__ import annotations

from quiesce.lab.swarm.loop import Life, Loop

DUE_S = 39.781


def test_what_is_due_at_one_time_happens_in_the_order_in_which_it_was_sent() -> None:
    """`now + (due - now)` is not always `due`: frames of one stream overtook each other by a rounding error."""
    loop, heard = Loop(), list[int]()
    rounded = set()
    for number in range(200):
        sent_s = number * 0.037
        rounded.add(sent_s + (DUE_S - sent_s))
        loop.at(sent_s, None, loop.at, DUE_S, None, heard.append, number)
    assert len(rounded) > 1
    loop.run(40.0)
    assert heard == list(range(200))


def test_what_is_due_in_the_past_happens_now_and_not_to_the_dead() -> None:
    loop, life, heard = Loop(), Life("decode 0"), list[float]()
    loop.run(5.0)
    loop.at(1.0, life, lambda: heard.append(loop.now_s))
    loop.run(6.0)
    life.dead = True
    loop.at(7.0, life, lambda: heard.append(loop.now_s))
    loop.run(8.0)
    assert heard == [5.0]
