"""Prompts go where their beginning was computed before, unless that worker is much busier than another."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest

from quiesce.ids import Incarnation
from quiesce.lab.cluster import Cluster
from quiesce.protocol.dispatch import NO_PREFIX_CACHE, Load, Sampling, Welcome
from quiesce.router.fleet import Fleet
from quiesce.router.link import WorkerLink
from quiesce.router.order import Order
from quiesce.router.pairs import Pair, choose
from quiesce.router.warmth import BLOCK_TOKENS, MOST_BLOCKS, MOST_LIVES, Warmth, beginnings

ONE, OTHER = Incarnation("a" * 32), Incarnation("b" * 32)


def packed(*blocks: int, more: int = 0) -> bytes:
    """A prompt of whole blocks, each of one token, and of `more` tokens after them."""
    return np.repeat(np.array([*blocks, 99], np.uint32), [BLOCK_TOKENS] * len(blocks) + [more]).tobytes()


def test_a_beginning_is_a_chain_under_a_salt() -> None:
    longer, other_end = beginnings(packed(1, 2, 3, more=5), ""), beginnings(packed(1, 2, 4), "")
    assert len(longer) == 3
    assert longer[:2] == other_end[:2]
    assert longer[2] != other_end[2]
    assert not set(longer) & set(beginnings(packed(1, 2, 3), "another tenant"))
    assert beginnings(packed(more=BLOCK_TOKENS - 1), "") == ()
    assert len(beginnings(packed(*range(MOST_BLOCKS + 3)), "")) == MOST_BLOCKS


def test_who_has_how_much() -> None:
    warmth = Warmth()
    warmth.remember(beginnings(packed(1, 2), ""), (ONE,))
    warmth.remember(beginnings(packed(1, 7), ""), (OTHER,))
    share = warmth.shares(beginnings(packed(1, 2, 3, 4), ""))
    assert (share(ONE), share(OTHER)) == (0.5, 0.25)
    nothing = warmth.shares(beginnings(packed(5, 2), ""))
    assert (nothing(ONE), warmth.shares(())(ONE)) == (0.0, 0.0)
    warmth.forget()
    assert warmth.shares(beginnings(packed(1, 2), ""))(ONE) == 0.0


def test_what_was_not_used_longest_is_forgotten_from_its_end() -> None:
    warmth = Warmth(most=3)
    warmth.remember(beginnings(packed(1, 2), ""), (ONE,))
    warmth.remember(beginnings(packed(5, 6), ""), (ONE,))
    assert warmth.shares(beginnings(packed(1, 2), ""))(ONE) == 0.5
    assert warmth.shares(beginnings(packed(5, 6), ""))(ONE) == 1.0


def test_a_block_has_few_lives_and_the_latest() -> None:
    warmth, digests = Warmth(), beginnings(packed(1), "")
    lives = [Incarnation(f"{number:032x}") for number in range(MOST_LIVES + 2)]
    for life in [*lives, lives[2]]:
        warmth.remember(digests, (life,))
    share = warmth.shares(digests)
    assert [share(life) for life in lives] == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def worker(life: Incarnation, free_tokens: int, *facts: tuple[str, str]) -> WorkerLink:
    link = WorkerLink(Path(life), Fleet([]))
    link.welcome = Welcome(life, "aggregated", life, "m", "", 4096, 4096, 16, 8, facts=facts)
    link.load = Load(0, 0, free_tokens)
    return link


@pytest.mark.parametrize(
    ("free_tokens", "facts", "warm"),
    [
        (400, (), True),
        (399, (), False),  # the rest of the prompt would wait for pages there
        (4096, (NO_PREFIX_CACHE,), False),
    ],
)
def test_a_cache_is_worth_nothing_where_there_is_none_or_no_room(
    free_tokens: int, facts: tuple[tuple[str, str], ...], warm: bool
) -> None:
    order = Order(token_ids=b"", prompt_tokens=800, sampling=Sampling(), max_tokens=1)
    pairs = [Pair(worker(ONE, free_tokens, *facts)), Pair(worker(OTHER, 4096))]
    chosen = [choose(pairs, order, frozenset(), turn, warmth=half_of_one)[0].lives for turn in range(2)]
    assert chosen == ([(ONE,), (ONE,)] if warm else [(ONE,), (OTHER,)])


def half_of_one(life: Incarnation) -> float:
    return 0.5 if life == ONE else 0.0


@pytest.mark.slow
async def test_a_conversation_stays_with_its_pair() -> None:
    """Two pairs and one after the other: by turns a prompt would meet a cold cache each second time."""
    flags = ("--model", "tiny", "--prefill", "2", "--decode", "2")
    prompt = [5 + number % 90 for number in range(3 * BLOCK_TOKENS)]
    async with Cluster(*flags) as cluster, httpx.AsyncClient(base_url=cluster.url, timeout=120) as client:
        await cluster.all_here("prefill-0", "prefill-1", "decode-0", "decode-1")
        cached = []
        for turn in range(4):
            ids = [*prompt, *range(10, 10 + 16 * turn)]
            answer = await client.post("/v1/completions", json={"prompt": ids, "max_tokens": 1, "temperature": 0})
            cached.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == 0
    assert all(tokens >= 2 * BLOCK_TOKENS for tokens in cached[1:])
