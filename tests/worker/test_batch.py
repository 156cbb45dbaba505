"""Continuous batching: whoever runs beside a sequence, and whatever happens to its pages, its tokens are its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from quiesce.ids import Attempt, RequestId
from quiesce.kv.allocator import PageState
from quiesce.protocol.dispatch import Sampling

from .gate import Gate
from .rig import PAGE, Rig, alone, prompt_ids

Ids = NDArray[np.int32]
Logits = NDArray[np.float32]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


async def test_sequences_join_and_leave_midway(rig: Rig) -> None:
    """Four sequences of different lengths that join at different steps say what each says alone."""
    asked = {f"r{i}": (prompt_ids(5 + 3 * i, i), 4 + 5 * (i % 3)) for i in range(4)}
    for name, (ids, max_tokens) in asked.items():
        rig.begin(name, ids, max_tokens)
        await rig.batch.step()
        await rig.batch.step()
    await rig.run()
    assert rig.said.tokens == {name: alone(ids, n) for name, (ids, n) in asked.items()}
    assert set(rig.said.finish.values()) == {"length"}
    assert rig.all_free


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
async def test_growth_over_page_borders(rig: Rig, length: int) -> None:
    """A context grows by a page exactly when its next token needs one."""
    ids = prompt_ids(length)
    sequence = rig.begin("r", ids, 3 * PAGE)
    while await rig.batch.step():
        in_memory = length + len(rig.said.tokens[RequestId("r")]) - 1
        assert sequence.ended or len(sequence.pages) == rig.pool.layout.pages_for(in_memory)
    assert rig.said.tokens[RequestId("r")] == alone(ids, 3 * PAGE)


async def test_a_sequence_that_finishes_with_its_first_token_never_joins(rig: Rig) -> None:
    rig.begin("r", prompt_ids(6), 1, leased=True)
    assert rig.said.finish == {"r": "length"}
    assert rig.batch.running == 0
    assert rig.said.unused == [Attempt(1)]
    assert not await rig.batch.step()


async def test_a_stop_id_ends_the_answer_and_is_not_said(rig: Rig) -> None:
    ids = prompt_ids(9)
    expected = alone(ids, 8)
    end = next(i for i in range(1, 8) if expected[i] not in expected[:i])
    rig.begin("r", ids, 8, stop_ids=[expected[end]])
    await rig.run()
    assert rig.said.tokens == {"r": expected[:end]}
    assert rig.said.finish == {"r": "stop"}
    assert rig.all_free


async def test_draws_depend_on_seed_and_step_alone(rig: Rig) -> None:
    """A sampled answer is the same beside others as alone."""
    warm, ids = Sampling(temperature=1.5, top_p=0.9), prompt_ids(7)
    rig.begin("first", ids, 10, sampling=warm)
    await rig.run()
    rig.begin("beside", prompt_ids(11, 3), 10)
    rig.begin("second", ids, 10, sampling=warm)
    await rig.run()
    assert rig.said.tokens[RequestId("first")] == rig.said.tokens[RequestId("second")]


async def test_no_more_run_at_once_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(max_running=2)
    sizes: list[int] = []
    decode_step = rig.engine.decode_step

    def counted(tokens: Ids, positions: Ids, table: Ids) -> Logits:
        sizes.append(len(tokens))
        return decode_step(tokens, positions, table)

    monkeypatch.setattr(rig.engine, "decode_step", counted)
    asked = {f"r{i}": prompt_ids(5, i) for i in range(4)}
    for name, ids in asked.items():
        rig.begin(name, ids, 6)
    await rig.run()
    assert max(sizes) == 2
    assert rig.said.tokens == {name: alone(ids, 6) for name, ids in asked.items()}
    rig.close()


# ---------------------------------------------------------------- pages run out


async def test_retraction_changes_no_token() -> None:
    """In a pool too small for all, the youngest waits in host memory and comes back; nobody's tokens change."""
    rig = Rig(pages=14)
    asked = {f"r{i}": prompt_ids(9 + i, i) for i in range(4)}
    for name, ids in asked.items():
        rig.begin(name, ids, 24)
    retracted = 0
    while await rig.batch.step():
        retracted = max(retracted, rig.batch.retracted)
    assert retracted >= 2
    assert rig.said.tokens == {name: alone(ids, 24) for name, ids in asked.items()}
    assert rig.all_free


async def test_retraction_forgets_nothing_of_what_was_said() -> None:
    """Penalties count what was said before; log probabilities go on, one for each token."""
    shaped = Sampling(temperature=0.0, frequency_penalty=1.0, repetition_penalty=1.3, logprobs=2)
    said = []
    for pages in (64, 14):
        rig = Rig(pages=pages)
        for i in range(4):
            rig.begin(f"r{i}", prompt_ids(9 + i, i), 24, sampling=shaped)
        retracted = 0
        while await rig.batch.step():
            retracted = max(retracted, rig.batch.retracted)
        assert bool(retracted) == (pages == 14)
        said.append((rig.said.tokens, rig.said.logprobs))
        rig.close()
    assert said[0] == said[1]
    tokens, logprobs = said[0]
    assert {name: len(told) for name, told in logprobs.items()} == dict.fromkeys(tokens, 24)
    assert tokens != {name: alone(prompt_ids(9 + i, i), 24) for i, name in enumerate(tokens)}


async def test_only_who_asked_is_told_logprobs(rig: Rig) -> None:
    rig.begin("plain", prompt_ids(6, 1), 5)
    rig.begin("told", prompt_ids(6, 2), 5, sampling=Sampling(temperature=0.0, logprobs=3))
    await rig.run()
    assert rig.said.logprobs[RequestId("plain")] == []
    told = rig.said.logprobs[RequestId("told")][1:]
    assert [entry.top_ids[0] for entry in told] == rig.said.tokens[RequestId("told")][1:]
    assert all(entry.logprob == entry.top_logprobs[0] for entry in told)


async def test_the_oldest_goes_on_and_comes_back_first() -> None:
    """Whoever was retracted does not become the youngest by it: answers end in the order of their beginning."""
    rig = Rig(pages=12)
    for i in range(4):
        rig.begin(f"r{i}", prompt_ids(11, i), 20)
    await rig.run()
    assert list(rig.said.finish) == ["r0", "r1", "r2", "r3"]
    rig.close()


async def test_one_that_waits_to_join_gives_way() -> None:
    """With every row taken, a running sequence gets its page from one that has pages and no row yet."""
    rig = Rig(pages=4, max_running=1)
    asked = {"first": prompt_ids(8, 1), "second": prompt_ids(8, 2)}
    for name, ids in asked.items():
        rig.begin(name, ids, 6)
    await rig.run()
    assert rig.said.tokens == {name: alone(ids, 6) for name, ids in asked.items()}
    rig.close()


async def test_a_retracted_lease_is_given_back() -> None:
    """Retraction frees the hand-off's pages for good: the sequence comes back on pages of its own."""
    rig = Rig(pages=6)
    rig.begin("old", prompt_ids(8, 1), 12)
    young = rig.begin("young", prompt_ids(8, 2), 12, leased=True)
    leased = young.pages.copy()
    while not rig.batch.retracted:
        await rig.batch.step()
    assert rig.said.unused == [Attempt(1)]
    rig.allocator.release(leased)  # as the executor does when the attempt is released
    await rig.run()
    assert rig.said.tokens[RequestId("young")] == alone(prompt_ids(8, 2), 12)
    assert rig.said.unused == [Attempt(1)]
    assert rig.all_free
    rig.close()


async def test_a_retracted_sequence_can_end() -> None:
    rig = Rig(pages=6)
    rig.begin("old", prompt_ids(8, 1), 12)
    rig.begin("young", prompt_ids(8, 2), 12)
    while not rig.batch.retracted:
        await rig.batch.step()
    assert rig.batch.end(RequestId("young"))
    assert (rig.batch.retracted, rig.batch.running) == (0, 1)
    await rig.run()
    assert rig.said.tokens[RequestId("old")] == alone(prompt_ids(8, 1), 12)
    assert "young" not in rig.said.finish
    assert rig.all_free
    rig.close()


# ---------------------------------------------------------------- ends


async def test_end_during_a_step_keeps_the_pages_until_it_is_over(rig: Rig) -> None:
    """The engine still reads and writes them (rule 16)."""
    sequence = rig.begin("r", prompt_ids(8), 20)
    gate = Gate(rig.engine.decode_step)
    rig.engine.decode_step = gate  # type: ignore[method-assign]
    step = asyncio.create_task(rig.batch.step())
    await gate.reached()
    said = list(rig.said.tokens[RequestId("r")])
    assert rig.batch.end(RequestId("r"))
    assert rig.count(PageState.USED) == len(sequence.pages) == 3
    gate.open()
    await step
    assert rig.all_free
    assert rig.said.tokens == {"r": said}
    assert not rig.batch.end(RequestId("r"))


async def test_end_between_steps_frees_at_once(rig: Rig) -> None:
    rig.begin("r", prompt_ids(8), 20)
    await rig.batch.step()
    assert rig.batch.end(RequestId("r"))
    assert rig.all_free


async def test_a_lost_tag_ends_the_answer_before_the_token_is_said(rig: Rig) -> None:
    """A page that somebody else wrote during the step: no token of it is said, its pages never circulate again."""
    victim = rig.begin("victim", prompt_ids(8, 1), 20)
    rig.begin("beside", prompt_ids(8, 2), 6)
    gate = Gate(rig.engine.decode_step)
    rig.engine.decode_step = gate  # type: ignore[method-assign]
    step = asyncio.create_task(rig.batch.step())
    await gate.reached()
    rig.pool.tags[victim.pages[0]] = 1
    gate.open()
    await step
    assert rig.said.failures[RequestId("victim")].code == "context_changed"
    assert len(rig.said.tokens[RequestId("victim")]) == 1
    await rig.run()
    assert rig.said.tokens[RequestId("beside")] == alone(prompt_ids(8, 2), 6)
    assert rig.count(PageState.QUARANTINED) == 3
    assert rig.allocator.free_pages == rig.pool.pages - 3


async def test_a_lost_tag_is_seen_when_a_context_is_retracted() -> None:
    """What is saved to host memory comes back under a fresh tag, so it is checked before; the next one gives way."""
    rig = Rig(pages=9)
    asked = {name: prompt_ids(8, i) for i, name in enumerate(("old", "middle", "young"))}
    young = [rig.begin(name, ids, 8) for name, ids in asked.items()][-1]
    await rig.batch.step()
    while young.position < 12:
        await rig.batch.step()
    rig.pool.tags[young.pages[1]] = 1  # after one step's comparison and before the next
    await rig.run()
    assert rig.said.failures.keys() == {"young"}
    assert len(rig.said.tokens[RequestId("young")]) == 5
    for name in ("old", "middle"):
        assert rig.said.tokens[RequestId(name)] == alone(asked[name], 8)
    assert rig.count(PageState.QUARANTINED) == 3
    rig.close()


async def test_an_error_of_the_engine_reaches_the_caller(rig: Rig) -> None:
    """An engine that cannot compute at all is nobody's to swallow: the worker ends by it."""
    rig.begin("r", prompt_ids(8), 20)

    def broken(*_: object) -> None:
        raise ValueError("no such kernel")

    rig.engine.decode_step = broken  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no such kernel"):
        await rig.batch.step()


async def test_idle_returns_when_a_sequence_joins(rig: Rig) -> None:
    waiting = asyncio.create_task(rig.batch.idle())
    await asyncio.sleep(0)
    assert not waiting.done()
    rig.begin("r", prompt_ids(4), 2)
    await asyncio.wait_for(waiting, 5)
