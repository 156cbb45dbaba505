"""The published `sglang-router` drives our workers: its clients read what ours read, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from quiesce.lab.cluster import PRODUCT, Cluster
from quiesce.protocol.dispatch import WorkerSnapshot

from ..asking import CHAT, COMPLETION, events, streamed_text
from .sglang_router import SglangRouter, interpreter

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

KEY = "a key of the other router"
FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "1024", "--page-size", "4")
FRONTS = ("--fronts", "0", "--front-key", KEY)
GREEDY: dict[str, Any] = {"max_tokens": 24, "temperature": 0}
QUESTIONS = {
    "chat": (CHAT, {"messages": [{"role": "user", "content": "hi"}], **GREEDY}),
    "chat, drawn": (CHAT, {"messages": [{"role": "user", "content": "hi"}], "seed": 7, "max_tokens": 24, "n": 2}),
    "completion": (COMPLETION, {"prompt": "a prompt of more than one page", **GREEDY}),
    "several prompts": (COMPLETION, {"prompt": ["one", "two, longer"], **GREEDY}),
}


class Site:
    """`ours` is a client of our router, `theirs` of the other one, before the same workers."""

    def __init__(self, cluster: Cluster, ours: httpx.AsyncClient, theirs: httpx.AsyncClient) -> None:
        self.cluster, self.ours, self.theirs = cluster, ours, theirs

    async def empty(self) -> None:
        """Wait until both workers gave everything back."""
        for name in ("prefill-0", "decode-0"):
            await self.cluster.until(name, nothing_left)


def nothing_left(view: WorkerSnapshot) -> bool:
    free = view.pages["free"] + view.pages["cached"]
    return not (view.rooms or view.running or view.waiting) and free == sum(view.pages.values())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    python = await asyncio.to_thread(interpreter)
    with tempfile.TemporaryDirectory() as directory:
        async with Cluster(*FLAGS, *FRONTS, program=PRODUCT) as cluster:
            first = int((await table(cluster)).partition("bootstrap port ")[2].split()[0])
            pair = ("--prefill", f"http://127.0.0.1:{first}", str(first), "--decode", f"http://127.0.0.1:{first + 1}")
            flags = ("--pd-disaggregation", *pair, "--policy", "round_robin", "--api-key", KEY)
            async with (
                SglangRouter(python, Path(directory) / "log", *flags, workers=2) as router,
                client_of(cluster.url) as ours,
                client_of(router.url) as theirs,
            ):
                yield Site(cluster, ours, theirs)


async def table(cluster: Cluster) -> str:
    """What is said at start, when it is ready."""
    async with asyncio.timeout(60):
        while "Ready. Try" not in cluster.log:  # noqa: ASYNC110 - another process's output
            await asyncio.sleep(0.05)
    return cluster.log


def client_of(url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    bearer = {"authorization": f"Bearer {KEY}"}
    return httpx.AsyncClient(base_url=url, timeout=120, trust_env=False, limits=limits, headers=bearer)


async def answer(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Without what is new each time."""
    response = await client.post(path, json={"model": "tiny"} | body)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    assert document.pop("id")
    assert document.pop("created")
    document["usage"].pop("prompt_tokens_details")  # depends on who asked before
    return document


@pytest.mark.parametrize("name", QUESTIONS)
async def test_answers_are_those_of_our_own_router(site: Site, name: str) -> None:
    path, body = QUESTIONS[name]
    assert await answer(site.theirs, path, body) == await answer(site.ours, path, body)


async def test_a_stream_says_the_same(site: Site) -> None:
    path, body = QUESTIONS["chat"]
    told = {"model": "tiny", "stream": True, **body}
    texts = [streamed_text(events(await client.post(path, json=told))) for client in (site.theirs, site.ours)]
    whole = await answer(site.ours, path, body)
    assert texts == [whole["choices"][0]["message"]["content"]] * 2


async def test_generate_says_the_same(site: Site) -> None:
    prompt = "a prompt of more than one page"
    whole = await answer(site.ours, COMPLETION, {"prompt": prompt, **GREEDY, "logprobs": 2})
    told = {"text": prompt, "sampling_params": {"max_new_tokens": 24, "temperature": 0}}
    wanted = {"return_logprob": True, "top_logprobs_num": 2}
    theirs = (await site.theirs.post("/generate", json=told | wanted)).json()
    assert theirs["text"] == whole["choices"][0]["text"]
    logprobs = [entry[0] for entry in theirs["meta_info"]["output_token_logprobs"]]
    # It reads and writes such documents anew, and changes the last digit of some numbers.
    assert logprobs == pytest.approx(whole["choices"][0]["logprobs"]["token_logprobs"], rel=1e-14)
    response = await site.theirs.post("/generate", json=told | {"stream": True})
    last = [line for line in response.text.split("\n") if line][-2]
    assert json.loads(last.removeprefix("data: "))["text"] == theirs["text"]


async def test_a_prefix_that_our_clients_warmed_is_not_theirs(site: Site) -> None:
    body = {"model": "tiny", "prompt": "a long prompt that nobody else asks " * 2, **GREEDY}

    async def cached(client: httpx.AsyncClient) -> int:
        usage = (await client.post(COMPLETION, json=body)).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert [await cached(site.ours) > 0 for _ in range(2)] == [False, True]
    assert [await cached(site.theirs) > 0 for _ in range(2)] == [False, True]


async def test_many_at_once(site: Site) -> None:
    """Each reads its own answer."""
    prompts = [f"prompt number {number} " * (1 + number % 5) for number in range(48)]
    bodies = [{"prompt": prompt, "max_tokens": 12, "temperature": 0} for prompt in prompts]
    theirs = await asyncio.gather(*(answer(site.theirs, COMPLETION, body) for body in bodies))
    ours = await asyncio.gather(*(answer(site.ours, COMPLETION, body) for body in bodies))
    assert theirs == ours
    assert len({document["choices"][0]["text"] for document in theirs}) > len(prompts) // 2
    await site.empty()


async def test_clients_that_leave_leave_nothing(site: Site) -> None:
    """Some in the middle of a stream, some before anything came."""
    body = {"model": "tiny", "prompt": "leaving", "max_tokens": 900, "ignore_eos": True, "temperature": 0}

    async def leave_after(lines: int) -> None:
        async with site.theirs.stream("POST", COMPLETION, json=body | {"stream": True}) as response:
            coming = response.aiter_lines()
            for _ in range(lines):
                await anext(coming)

    waiting = [asyncio.ensure_future(site.theirs.post(COMPLETION, json=body)) for _ in range(4)]
    await asyncio.gather(*(leave_after(lines) for lines in (1, 3, 5, 20)))
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await site.empty()
    path, question = QUESTIONS["completion"]
    assert await answer(site.theirs, path, question) == await answer(site.ours, path, question)


async def test_what_decode_refuses_comes_back_at_once(site: Site) -> None:
    """Prefill's leg ends with decode's: this router waits for both."""
    response = await site.theirs.post(COMPLETION, json={"model": "tiny", "prompt": "x", "max_tokens": 5000})
    assert response.status_code == 400
    assert "5001 tokens" in response.text
    await site.empty()


async def test_it_asks_for_loads_and_flushes(site: Site) -> None:
    loads = (await site.theirs.get("/get_loads")).json()["workers"]
    assert [load["load"] >= 0 for load in loads] == [True, True]
    assert (await site.theirs.post("/flush_cache")).json()["workers_flushed"] == 2


async def test_the_wrong_key_is_refused_by_workers(site: Site) -> None:
    """It passes its clients' keys on."""
    body = {"model": "tiny", "prompt": "x"}
    response = await site.theirs.post(COMPLETION, json=body, headers={"authorization": "Bearer wrong"})
    assert response.status_code in (401, 403)


async def test_aggregated_workers_are_plain_ones() -> None:
    python = await asyncio.to_thread(interpreter)
    with tempfile.TemporaryDirectory() as directory:
        async with Cluster(*FLAGS, "--mode", "aggregated", "--fronts", "0", "--front-open", program=PRODUCT) as cluster:
            worker = (await table(cluster)).partition("front of aggregated-0")[2].partition("http://")[2].split()[0]
            flags = ("--worker-urls", f"http://{worker}", "--policy", "round_robin")
            async with (
                SglangRouter(python, Path(directory) / "log", *flags, workers=1) as router,
                client_of(router.url) as theirs,
                client_of(cluster.url) as ours,
            ):
                path, body = QUESTIONS["chat, drawn"]
                assert await answer(theirs, path, body) == await answer(ours, path, body)
