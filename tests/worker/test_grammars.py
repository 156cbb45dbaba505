"""Grammars at workers: prefill's first token obeys, decode goes on from it, and what cannot go on ends alone."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import cache
from typing import Any

import numpy as np
import pytest

from quiesce.engine.shaping import Mask, shaping_of
from quiesce.ids import RequestId
from quiesce.protocol.dispatch import Failed, Sampling
from quiesce.text import grammars as text_grammars
from quiesce.text import tiny
from quiesce.text.grammars import Grammars, Matcher, as_grammar
from quiesce.text.model import TextModel
from quiesce.worker.grammars import Constraint, GrammarThread, Lanes
from quiesce.worker.sequence import MOST_MISSES, Generation, Sequence

from .asking import BOTH, Ask
from .house import House
from .rig import GREEDY, Rig, alone, prompt_ids

ONE = "aggregated-0"
LETTERS = as_grammar("regex", "[A-Z][a-z]{3}[.]")
COUNTS = as_grammar("regex", "[ab]{40}")


def under(grammar: str, **how: Any) -> dict[str, Any]:
    return {"sampling": Sampling(grammar=grammar, seed=5, **how), "max_tokens": 60, "ignore_eos": False}


def text_of(ask: Ask) -> str:
    return bytes(ask.tokens).decode()


def failure_of(ask: Ask, worker: str) -> Failed:
    return next(frame for at, frame in ask.heard if at == worker and isinstance(frame, Failed))


# ---------------------------------------------------------------- whole workers


async def test_an_answer_obeys_from_its_first_token_on(house: House) -> None:
    await house.prefill()
    await house.decode()
    await house.aggregated()
    for seed in range(4):
        told = under(LETTERS) | {"sampling": Sampling(grammar=LETTERS, seed=seed)}
        ask = house.desk.ask(prompt_ids(20, seed), *BOTH, **told)
        beside = house.desk.ask(prompt_ids(20, seed), ONE, **told)
        assert await ask.end("decode-0") == await beside.end(ONE) == "stop"
        assert text_of(ask) == text_of(beside)
        assert text_of(ask)[0].isupper()
        assert text_of(ask)[1:4].islower()
        assert text_of(ask)[4:] == "."
    await house.empty()


async def test_the_first_token_is_prefills_and_obeys(house: House) -> None:
    """An answer of one token is drawn by prefill alone."""
    await house.prefill()
    await house.decode()
    for seed in range(6):
        told = under(LETTERS) | {"sampling": Sampling(grammar=LETTERS, seed=seed), "max_tokens": 1}
        ask = house.desk.ask(prompt_ids(9, seed), *BOTH, **told)
        assert await ask.end("decode-0") == "length"
        assert text_of(ask).isupper()


async def test_a_first_token_that_does_not_fit_ends_its_request_only(house: House) -> None:
    """Decode was told another grammar than prefill: that is nobody's answer. Who runs beside it goes on."""
    await house.prefill()
    await house.decode()
    beside = house.desk.ask(prompt_ids(12), *BOTH, max_tokens=40)
    odd = house.desk.ask(prompt_ids(20), "prefill-0", **under(as_grammar("regex", "z+")))
    house.desk.again(odd, "decode-0", **under(LETTERS))
    assert await odd.end("decode-0") == "grammar_failed"
    failure = failure_of(odd, "decode-0").failure
    assert (failure.status, failure.fault.value) == (400, "client")
    await beside.answers(40)
    await house.empty()


@pytest.mark.parametrize("alone_at", [ONE, ""])
async def test_what_cannot_be_compiled_fails_and_quotes_nothing(house: House, alone_at: str) -> None:
    """The router would not send it; whoever does is refused without an echo, and nothing is left."""
    await (house.aggregated() if alone_at else house.prefill())
    if not alone_at:
        await house.decode()
    workers = (alone_at,) if alone_at else BOTH
    ask = house.desk.ask(prompt_ids(20), *workers, **under(as_grammar("regex", "(secret")))
    assert await ask.end(workers[0]) == "invalid_grammar"
    failure = failure_of(ask, workers[0]).failure
    assert (failure.status, failure.fault.value) == (400, "client")
    assert "secret" not in failure.message
    fine = house.desk.ask(prompt_ids(12), *workers, max_tokens=3)
    assert await fine.end(workers[-1]) == "length"
    await house.empty()


@pytest.mark.parametrize("alone_at", [ONE, ""])
async def test_a_grammar_that_explodes_midway_ends_its_answer_only(
    house: House, monkeypatch: pytest.MonkeyPatch, alone_at: str
) -> None:
    """Its states are counted: memory is bounded, and who runs beside it does not notice."""
    monkeypatch.setattr(text_grammars, "_MOST_LEXER_STATES", 40)
    await (house.aggregated() if alone_at else house.prefill())
    if not alone_at:
        await house.decode()
    workers = (alone_at,) if alone_at else BOTH
    beside = house.desk.ask(prompt_ids(12), *workers, max_tokens=40)
    exploding = under(as_grammar("regex", "([ab]*a[ab]{30}x?){5}"))
    ask = house.desk.ask(prompt_ids(20), *workers, **exploding)
    assert await ask.end(workers[-1]) == "grammar_failed"
    assert "too complex" in failure_of(ask, workers[-1]).failure.message
    assert 1 <= len(ask.tokens) < 60
    assert set(text_of(ask)) <= {"a", "b", "x"}
    assert await beside.end(workers[-1]) == "length"
    assert beside.tokens == alone(beside.ids, 40)
    await house.empty()


# ---------------------------------------------------------------- the batch


def matcher(grammar: str) -> Matcher:
    return Grammars(TextModel.load("tiny")).compile(grammar)


@cache
def lanes() -> Lanes:
    return Lanes()


def constraint(grammar: str) -> Constraint:
    compiled: Future[Matcher] = Future()
    compiled.set_result(matcher(grammar))
    return Constraint(compiled, lanes())


def begin(rig: Rig, name: str, bound: Constraint, max_tokens: int = 60, length: int = 9, **how: Any) -> Sequence:
    """A sequence whose first token is "a"."""
    sampling = Sampling(temperature=0.0, **how)
    ids = prompt_ids(length)
    stop_ids = frozenset(tiny.EOS_TOKEN_IDS)
    shaping = shaping_of(sampling, ids, stop_ids, rig.engine.config.vocab_size, bound)
    sequence = Sequence(RequestId(name), Generation(sampling, 7, stop_ids, max_tokens), len(ids), shaping)
    sequence.own(*rig.batch.allocate(rig.pool.layout.pages_for(len(ids)), name))
    rig.pool.kv[sequence.pages] = np.float32(0.5)
    rig.batch.begin(sequence, ord("a"))
    return sequence


async def test_who_waits_for_its_grammar_stalls_nobody() -> None:
    """It joins when the grammar is there; the batch that has nothing else to do wakes up for it."""
    rig = Rig()
    compiling: Future[Matcher] = Future()
    late = Constraint(compiling, lanes())
    late.when_ready(rig.batch.wake)
    begin(rig, "late", late)
    rig.begin("beside", prompt_ids(6), 8)
    await rig.run()
    assert rig.said.finish == {"beside": "length"}
    assert rig.said.tokens[RequestId("late")] == [ord("a")]
    rig.batch.wake()
    await rig.batch.idle()
    waiting = asyncio.create_task(rig.batch.idle())
    compiling.set_result(matcher(as_grammar("regex", "abc")))
    await asyncio.wait_for(waiting, 60)
    await rig.run()
    assert bytes(rig.said.tokens[RequestId("late")]) == b"abc"
    assert rig.said.finish[RequestId("late")] == "stop"
    assert rig.all_free
    rig.close()


async def test_who_leaves_while_its_grammar_is_compiled_gives_all_back() -> None:
    rig = Rig()
    begin(rig, "late", Constraint(Future(), lanes()))
    assert not await rig.batch.step()
    assert rig.batch.end(RequestId("late"))
    assert rig.all_free
    rig.close()


async def test_retraction_forgets_nothing_of_a_grammar() -> None:
    """In a pool too small for all, answers are those of a large one."""
    said = []
    for pages in (64, 14):
        rig = Rig(pages=pages)
        for number in range(4):
            begin(rig, f"r{number}", constraint(COUNTS), length=9 + number)
        retracted = 0
        while await rig.step():
            retracted = max(retracted, rig.batch.retracted)
        assert bool(retracted) == (pages == 14)
        assert all(len(tokens) == 40 for tokens in rig.said.tokens.values())
        assert set(rig.said.finish.values()) == {"stop"}
        said.append(rig.said.tokens)
        rig.close()
    assert said[0] == said[1]


async def test_a_step_with_one_that_cannot_go_on_is_the_others_step() -> None:
    rig = Rig()
    begin(rig, "odd", constraint(as_grammar("regex", "xyz")))
    rig.begin("beside", prompt_ids(6), 8, sampling=GREEDY)
    await rig.run()
    assert rig.said.failures[RequestId("odd")].code == "grammar_failed"
    assert rig.said.tokens[RequestId("odd")] == [ord("a")]
    assert rig.said.tokens[RequestId("beside")] == alone(prompt_ids(6), 8)
    assert rig.all_free
    rig.close()


class Held(Matcher):
    """A matcher whose masks behind the second token wait for a door."""

    def __init__(self, grammar: str) -> None:
        super().__init__(matcher(grammar).compiled, tiny.USED_TOKENS)
        self.door = threading.Event()
        self._heard = 0

    def say(self, token: int) -> None:
        self._heard += 1
        super().say(token)

    def allowed(self) -> Mask:
        assert self._heard < 2 or self.door.wait(60)
        return super().allowed()


def held(rig: Rig, grammar: str) -> tuple[Sequence, threading.Event]:
    compiled: Future[Matcher] = Future()
    slow = Held(grammar)
    compiled.set_result(slow)
    return begin(rig, "slow", Constraint(compiled, lanes())), slow.door


@pytest.mark.parametrize("misses", [0, MOST_MISSES])
async def test_a_mask_that_takes_for_ever_delays_its_own_answer_only(misses: int) -> None:
    """The others' steps go on without it, and it goes on where it was as soon as it can. Who was often late is in no
    step without its mask.
    """
    rig = Rig()
    slow, door = held(rig, as_grammar("regex", "abcdef"))
    slow.misses = misses
    rig.begin("beside", prompt_ids(6), 30)
    while "beside" not in rig.said.finish or bytes(rig.said.tokens[RequestId("slow")]) == b"a":
        await rig.step()
        assert not rig.said.failures
    assert rig.said.tokens[RequestId("beside")] == alone(prompt_ids(6), 30)
    assert bytes(rig.said.tokens[RequestId("slow")]) == b"ab"
    while not slow.awaited:
        await rig.batch.step()
    assert not await rig.batch.step()
    assert (slow.misses > misses) == (misses < MOST_MISSES)
    door.set()
    await rig.run()
    assert bytes(rig.said.tokens[RequestId("slow")]) == b"abcdef"
    assert rig.said.finish[RequestId("slow")] == "stop"
    assert not rig.said.failures
    assert rig.all_free
    rig.close()


async def test_who_leaves_while_its_mask_is_made_gives_all_back() -> None:
    rig = Rig()
    slow, door = held(rig, COUNTS)
    while not slow.misses:
        await rig.step()
        assert not rig.said.failures
    assert rig.batch.end(RequestId("slow"))
    assert rig.all_free
    door.set()
    rig.close()


# ---------------------------------------------------------------- the thread


async def test_it_is_compiled_beside_the_loop_and_once() -> None:
    thread = GrammarThread("tiny")
    assert thread.begin("") is None
    first, second = thread.begin(LETTERS), thread.begin(LETTERS)
    assert first is not None
    assert second is not None
    await first.ready()
    await second.ready()
    first.say(ord("A"))
    assert first.wait(60)
    assert not first.allowed()[ord("A")]
    assert second.allowed()[ord("A")]
    thread.close()
