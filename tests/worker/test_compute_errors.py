"""An error inside one request fails that request: the others' tokens are what they would have been without it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from quiesce.engine.finite import NotFinite, finite_rows
from quiesce.engine.sampling import sample
from quiesce.errors import InvariantBroken
from quiesce.kv.allocator import PageState
from quiesce.protocol.dispatch import Failed, Sampling
from quiesce.worker.batch import MOST_LOST_STEPS
from quiesce.worker.sequence import Sequence, shaping_for

from .asking import BOTH
from .house import House
from .rig import PAGE, Rig, alone, prompt_ids

ASKED = {f"r{i}": (prompt_ids(5 + 3 * i, i), 9) for i in range(4)}
VICTIM = "r2"
STEP_SAMPLE = "quiesce.worker.step.sample"


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def begin_all(rig: Rig, **changes: Any) -> dict[str, Sequence]:
    return {name: rig.begin(name, ids, n, **changes) for name, (ids, n) in ASKED.items()}


def broken(*_: Any, **__: Any) -> Any:
    raise ValueError("no such kernel")


async def only_the_victim_fails(rig: Rig, kind: type[Exception], said: int) -> None:
    """It failed after `said` tokens, with this error; the others said what they say alone; every page is free."""
    await rig.run()
    assert {name: failure.code for name, failure in rig.said.failures.items()} == {VICTIM: "compute_failed"}
    assert [type(error) for error in rig.said.errors.values()] == [kind]
    expected = {name: alone(ids, n) for name, (ids, n) in ASKED.items()}
    expected[VICTIM] = expected[VICTIM][:said]
    assert rig.said.tokens == expected
    assert rig.all_free


def poison(rig: Rig, victim: Sequence, harm: Callable[[Any, int], Any], after: int = 0) -> None:
    """`harm(logits, row)` is called in each step in which the victim stands, once it said more than `after` tokens."""
    engine: Any = rig.engine
    inner = engine.decode_step

    def poisoned(tokens: Any, positions: Any, table: Any) -> Any:
        logits = inner(tokens, positions, table)
        rows: list[int] = np.flatnonzero((table[:, 0] == victim.pages[:1]) & (positions == victim.position)).tolist()
        return harm(logits, rows[0]) if rows and victim.generated > after else logits

    engine.decode_step = poisoned


# ---------------------------------------------------------------- a batch


@pytest.mark.parametrize("after", [1, 4])
async def test_an_error_of_one_row_fails_that_row(rig: Rig, after: int) -> None:
    """The step had stored every row's K and V by then; it is repeated row by row, and changes no token."""
    victim = begin_all(rig)[VICTIM]
    poison(rig, victim, broken, after)
    await only_the_victim_fails(rig, ValueError, after + 1)


async def test_a_step_that_failed_half_way_is_repeated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes in the last layer, when K and V of earlier ones are stored for all rows."""
    victim = begin_all(rig)[VICTIM]
    model: Any = rig.engine._model
    attend, layers = model._attend, []

    def failing(qkv: Any, index: int, rows: Any, pool: Any) -> Any:
        layers.append(index)
        if index == len(model._layers) - 1 and np.isin(rows.page_table[:, 0], victim.pages[:1]).any():
            raise ValueError("no such kernel")
        return attend(qkv, index, rows, pool)

    monkeypatch.setattr(model, "_attend", failing)
    await only_the_victim_fails(rig, ValueError, 1)
    assert max(layers) > 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
async def test_logits_that_are_no_numbers_fail_their_row(rig: Rig, value: float) -> None:
    """One NaN is enough; argmax would say its token, and go on."""

    def harm(logits: Any, row: int) -> Any:
        logits[row, 7] = value
        return logits

    poison(rig, begin_all(rig)[VICTIM], harm, after=2)
    await only_the_victim_fails(rig, NotFinite, 3)


def test_masked_tokens_are_no_fault() -> None:
    logits = np.zeros((4, 5), np.float32)
    logits[0, 1:] = -np.inf
    logits[1] = -np.inf
    logits[2, 3] = np.nan
    assert finite_rows(logits).tolist() == [True, False, False, True]


@pytest.mark.parametrize(("method", "said"), [("apply", 3), ("say", 2)])
async def test_an_error_in_shaping_fails_its_row(rig: Rig, method: str, said: int) -> None:
    """In the draw (`apply`, on the engine thread) and when a token is taken (`say`, on the loop)."""
    neutral = Sampling(temperature=0.0, logit_bias=((3, 0.0),))
    sequences = begin_all(rig, sampling=neutral)
    shaping: Any = sequences[VICTIM].shaping
    inner = getattr(shaping, method)

    def failing(*args: Any) -> Any:
        return broken() if sequences[VICTIM].generated > 2 else inner(*args)

    setattr(shaping, method, failing)
    await only_the_victim_fails(rig, ValueError, said)


async def test_logprobs_stay_with_their_rows(rig: Rig) -> None:
    """A step that is repeated row by row tells each request of its own tokens."""
    told = Sampling(temperature=0.0, logprobs=1)
    victim = begin_all(rig, sampling=told)[VICTIM]
    poison(rig, victim, broken, after=1)
    await rig.run()
    for name, (ids, n) in ASKED.items():
        entries = rig.said.logprobs[victim.request if name == VICTIM else name][1:]  # type: ignore[index]
        said = alone(ids, n)[1 : 2 if name == VICTIM else n]
        assert [entry.top_ids[0] for entry in entries] == said


async def test_one_that_is_alone_fails_and_the_engine_goes_on(rig: Rig) -> None:
    """Nobody stands beside it to show that the engine is sound: the engine's own warm-up does."""
    poison(rig, rig.begin("alone", prompt_ids(6), 9), broken)
    await rig.run()
    assert rig.said.failures["alone"].code == "compute_failed"  # type: ignore[index]
    begin_all(rig)
    await rig.run()
    assert {name: rig.said.tokens[name] for name in ASKED} == {  # type: ignore[index]
        name: alone(ids, n) for name, (ids, n) in ASKED.items()
    }
    assert rig.all_free


async def test_a_broken_engine_reaches_the_caller(rig: Rig) -> None:
    begin_all(rig)
    rig.engine.decode_step = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no such kernel"):
        await rig.batch.step()
    assert not rig.said.failures


async def test_steps_that_give_nobody_a_token_reach_the_caller(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine warms up, and yet nothing comes of it: not the requests' fault any more."""
    monkeypatch.setattr(STEP_SAMPLE, broken)
    for number in range(MOST_LOST_STEPS - 1):
        rig.begin(f"lost {number}", prompt_ids(6), 9)
        await rig.run()
    monkeypatch.setattr(STEP_SAMPLE, sample)
    rig.begin("good", prompt_ids(6), 9)
    await rig.run()
    assert rig.said.finish == {"good": "length"}
    monkeypatch.setattr(STEP_SAMPLE, broken)
    for number in range(MOST_LOST_STEPS):
        rig.begin(f"lost again {number}", prompt_ids(6), 9)
        if number < MOST_LOST_STEPS - 1:
            await rig.run()
    with pytest.raises(ValueError, match="no such kernel"):
        await rig.batch.step()


@pytest.mark.parametrize("where", ["step", "row", "draw", "drawn row", "say"])
async def test_a_broken_invariant_is_nobodys_own(rig: Rig, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Pages may not be where they are thought to be: the worker ends by it."""

    def wrong(*_: Any) -> Any:
        raise InvariantBroken("pages cover positions")

    victim = begin_all(rig)[VICTIM]
    if where in {"step", "row"}:
        alone_only = where == "row"
        poison(rig, victim, lambda logits, _: broken() if alone_only and len(logits) > 1 else wrong())
    elif where == "draw":
        monkeypatch.setattr(STEP_SAMPLE, wrong)
    elif where == "drawn row":
        monkeypatch.setattr(STEP_SAMPLE, lambda logits, *_: broken() if len(logits) > 1 else wrong())
    else:
        monkeypatch.setattr(victim, "accept", wrong)
    with pytest.raises(InvariantBroken):
        await rig.batch.step()


async def test_a_sequence_that_cannot_begin_gives_its_pages_back(rig: Rig) -> None:
    first = rig.begin("first", prompt_ids(6), 3)
    sequence = Sequence(first.request, first.generation, PAGE)
    sequence.request = type(first.request)("refused")
    sequence.own(*rig.batch.allocate(2, "refused"))
    rig.batch.refuse(sequence, ValueError("no such grammar"))
    assert rig.said.failures[sequence.request].code == "compute_failed"
    assert rig.count(PageState.USED) == len(first.pages)
    await rig.run()
    assert rig.all_free


# ---------------------------------------------------------------- workers


def fails_for(engine: Any, name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in which a context of about `length` tokens stands raise an error that quotes it."""
    inner = engine.decode_step

    def poisoned(tokens: Any, positions: Any, table: Any) -> Any:
        if (positions >= length).any():
            raise ValueError(f"{name} said something secret")
        return inner(tokens, positions, table)

    monkeypatch.setattr(engine, "decode_step", poisoned)


@pytest.mark.parametrize("workers", [BOTH, ("aggregated-0",)])
async def test_a_worker_goes_on_beside_a_request_that_breaks(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, workers: tuple[str, ...]
) -> None:
    """500 for the one, answers for the others; counted, and logged with its id and without what the error quotes."""
    if len(workers) == 2:
        await house.prefill()
        member: Any = await house.decode()
    else:
        member = await house.aggregated()
    fails_for(member.worker.parts.engine, "a tenant", 100, monkeypatch)
    with caplog.at_level(logging.ERROR, "quiesce"):
        good = [house.desk.ask(prompt_ids(14, i), *workers, max_tokens=20) for i in range(3)]
        bad = house.desk.ask(prompt_ids(98, 9), *workers, max_tokens=20)
        assert await bad.end(member.name) == "compute_failed"
        for ask in good:
            assert await ask.end(member.name) == "length"
            assert ask.tokens == alone(ask.ids, 20)
    failure = next(frame.failure for _, frame in bad.heard if isinstance(frame, Failed))
    assert failure.status == 500
    assert await house.desk.metric(member.name, "quiesce_compute_errors_total") == 1
    record = next(each for each in caplog.records if "computing for a request failed" in each.message)
    assert record.ids["request"] == bad.request  # type: ignore[attr-defined]
    assert record.ids["reason"].startswith("ValueError at test_compute_errors.py:")  # type: ignore[attr-defined]
    assert "secret" not in caplog.text
    await house.empty()


async def test_a_prompt_whose_logits_are_no_numbers_fails(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is handed off, so decode never has a token of it."""
    prefill = await house.prefill()
    await house.decode()
    engine = prefill.worker.parts.engine
    inner = engine.prefill_chunk

    def poisoned(ids: Any, *args: Any, **kwargs: Any) -> Any:
        logits = inner(ids, *args, **kwargs)
        return np.full_like(logits, np.nan) if logits is not None and len(ids) == 13 else logits

    monkeypatch.setattr(engine, "prefill_chunk", poisoned)
    bad, good = (house.desk.ask(prompt_ids(length), *BOTH, max_tokens=6) for length in (13, 14))
    for worker in BOTH:
        assert await bad.end(worker) == "compute_failed"
    assert bad.tokens == []
    assert await good.end("decode-0") == "length"
    assert await house.desk.metric("prefill-0", "quiesce_compute_errors_total") == 1
    await house.empty()


async def test_a_shaping_that_cannot_be_made_fails_its_request(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made when the hand-off is committed, within the machine's effects: they are carried out to their end."""
    await house.prefill()
    decode = await house.decode()

    def failing(request: Any, config: Any) -> Any:
        return broken() if request.prompt_tokens == 13 else shaping_for(request, config)

    monkeypatch.setattr("quiesce.worker.generating.shaping_for", failing)
    bad, good = (house.desk.ask(prompt_ids(length), *BOTH, max_tokens=6) for length in (13, 14))
    assert await bad.end("decode-0") == "compute_failed"
    await good.answers(6)
    assert decode.running is not None
    assert not decode.running.done()
    await house.empty()
