"""Tenants in front of a whole server: real halves that meet, real caches, a real flood."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from quiesce.lab.cluster import Cluster

from .asking import COMPLETION
from .tenancy import bearer, write_tenants

pytestmark = pytest.mark.slow

FLAGS = ("--model", "tiny", "--context-length", "512", "--page-size", "4", "--max-running-requests", "2")
FLOOD = 200


async def ask(client: httpx.AsyncClient, tenant: str, **fields: Any) -> dict[str, Any]:
    body = {"prompt": "the same prompt of all tenants", "max_tokens": 8, "temperature": 0} | fields
    response = await client.post(COMPLETION, json=body, headers=bearer(tenant))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def cached(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


async def test_tenants_share_a_server_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    write_tenants(file, a="", b="")
    async with (
        Cluster(*FLAGS, "--tenants", str(file)) as cluster,
        httpx.AsyncClient(
            base_url=cluster.url, trust_env=False, timeout=120, limits=httpx.Limits(max_connections=None)
        ) as client,
    ):
        first, again, other = [await ask(client, tenant) for tenant in ("a", "a", "b")]
        assert first["choices"] == again["choices"] == other["choices"]
        assert cached(first) == 0
        assert cached(again) > 0
        assert cached(other) == 0, "b never hits what a warmed"

        over: list[str] = []
        flood = [asyncio.ensure_future(ask(client, "a", max_tokens=16, seed=number)) for number in range(FLOOD)]
        for task in flood:
            task.add_done_callback(lambda _: over.append("a"))
        await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        await ask(client, "b")
        assert len(over) < FLOOD // 2, "b did not wait for the flood"
        await asyncio.gather(*flood)

        write_tenants(file, a="", b="", c="")
        assert cluster._process is not None
        cluster._process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while (await client.get("/v1/models", headers=bearer("c"))).status_code == 401:
                pass
        assert (await ask(client, "c"))["choices"] == first["choices"]
