"""`quiesce serve --transfer pull`, whole: the answers of every way are the same bytes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from quiesce.lab.client import Client
from quiesce.lab.cluster import PRODUCT, Cluster
from tests.transport.installed import skip_unless_here

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "2048", "--max-prefill-tokens", "64")
ASKED: list[dict[str, Any]] = [
    {"prompt": [65 + (seed * i) % 26 for i in range(tokens)], "max_tokens": 24, "logprobs": 3, "temperature": 0}
    for seed, tokens in ((3, 1), (5, 40), (7, 700), (7, 700))
]
TCP = ("--transport", "tcp")
WAYS = {
    "push": TCP,
    "pull": (*TCP, "--transfer", "pull"),
    "pull in small reads": (*TCP, "--transfer", "pull", "--transfer-batch-pages", "2", "--payload-digest", "blake2b"),
    "auto": ("--transfer", "pull"),
    "nixl": ("--transport", "nixl", "--transfer", "pull", "--trust-network"),
}


async def answers(*flags: str) -> list[Any]:
    """Everything of the answers but names and times, and that pages were read where that was asked for."""
    async with Cluster(*FLAGS, *flags, program=PRODUCT) as cluster, httpx.AsyncClient(base_url=cluster.url) as http:
        told = [(await http.post("/v1/completions", json={**body, "ignore_eos": True})).json() for body in ASKED]
        async with Client(cluster.url) as client:
            read = await client.metric("quiesce_reads_total", role="decode", outcome="landed")
            assert (read > 0) is ("pull" in flags)
        for name in () if "aggregated" in flags else ("prefill-0", "decode-0"):
            await cluster.until(name, lambda view: not view.rooms)
    return [(answer["choices"], answer["usage"]) for answer in told]


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    """What one process answers; filled by the first test that asks."""
    return []


@pytest.mark.parametrize("way", WAYS)
async def test_answers_do_not_depend_on_how_pages_travel(way: str, alone: list[Any]) -> None:
    if "nixl" in WAYS[way]:
        skip_unless_here("nixl")
    if not alone:
        alone.extend(await answers("--mode", "aggregated"))
    assert await answers(*WAYS[way]) == alone
