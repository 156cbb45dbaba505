"""What happened in the last two minutes, and nothing older."""

from __future__ import annotations

from quiesce.router.throughput import SPAN_S, Throughput


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.25

    def __call__(self) -> float:
        return self.now_s


def test_whole_seconds_are_counted_the_oldest_first() -> None:
    throughput = Throughput(clock := Clock())
    throughput.tokens(3)
    clock.now_s += 1
    throughput.tokens(4)
    throughput.tokens(6)
    assert throughput.tokens_per_second()[-2:] == [0, 3]
    clock.now_s += 1
    assert throughput.tokens_per_second()[-3:] == [0, 3, 10]
    assert len(throughput.tokens_per_second()) == SPAN_S
    assert throughput.token_rate() == 13 / 5


def test_what_is_old_is_forgotten() -> None:
    throughput = Throughput(clock := Clock())
    throughput.tokens(3)
    throughput.ended()
    throughput.first_token(0.5)
    clock.now_s += 1
    assert throughput.request_rate() == 1 / 60
    assert throughput.first_token_s() == 0.5
    clock.now_s += SPAN_S + 1
    throughput.tokens(1)
    assert sum(throughput.tokens_per_second()) == 0
    assert throughput.request_rate() == 0
    assert throughput.first_token_s() is None
    assert len(throughput._tokens) == 1


def test_the_first_token_is_a_median() -> None:
    throughput = Throughput(Clock())
    for seconds in (0.1, 9.0, 0.2):
        throughput.first_token(seconds)
    assert throughput.first_token_s() == 0.2
