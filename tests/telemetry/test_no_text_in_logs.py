"""A real server, asked in every way, logs nothing of what was asked or answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import PRODUCT, Cluster

pytestmark = pytest.mark.slow

MARKER = "xylophone"
FLAGS = ("--model", "tiny", "--context-length", "512", "--page-size", "4", "--log-level", "debug", "--deterministic")

BODIES: dict[str, tuple[str, bytes | dict[str, Any]]] = {
    "completion": ("completions", {"prompt": f"my {MARKER}", "max_tokens": 4}),
    "stop string": ("completions", {"prompt": "my", "max_tokens": 4, "stop": [MARKER, f"{MARKER}!"]}),
    "chat": ("chat/completions", {"messages": [{"role": "user", "content": MARKER}], "max_tokens": 4}),
    "no such role": ("chat/completions", {"messages": [{"role": MARKER, "content": MARKER}]}),
    "no such field": ("completions", {"prompt": MARKER, MARKER: MARKER, "max_tokens": 4}),
    "no such model": ("completions", {"prompt": MARKER, "model": MARKER}),
    "too long": ("completions", {"prompt": MARKER * 200, "max_tokens": 4}),
    "wrong type": ("completions", {"prompt": MARKER, "max_tokens": MARKER}),
    "user": ("completions", {"prompt": MARKER, "max_tokens": 4, "user": MARKER}),
    "bad JSON": ("completions", f'{{"prompt": "{MARKER}'.encode()),
    "bad UTF-8": ("completions", f'{{"prompt": "{MARKER}'.encode() + b'\\xff\\xfe"}'),
    "lone surrogate": ("completions", f'{{"prompt": "{MARKER} \\ud800"}}'.encode()),
}


async def ask_everything(url: str) -> dict[str, int]:
    """Each body, then a client that leaves; the statuses."""
    statuses = {}
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        for name, (path, body) in BODIES.items():
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"content-type": "application/json", "x-request-id": "from-afar"}
            statuses[name] = (await http.post(f"/v1/{path}", content=raw, headers=headers)).status_code
        await http.get(f"/{MARKER}")
    async with Client(url) as client:
        pieces = client.pieces({"prompt": MARKER, "max_tokens": 400, "ignore_eos": True}, Answer())
        await anext(pieces)
        asking = asyncio.create_task(client.ask({"prompt": MARKER, "max_tokens": 400, "ignore_eos": True}))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await pieces.aclose()  # type: ignore[attr-defined]
    return statuses


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_what_clients_say_is_not_logged(log_format: str) -> None:
    cluster = Cluster(*FLAGS, "--log-format", log_format, program=PRODUCT)
    async with cluster:
        statuses = await ask_everything(cluster.url)
        await cluster.until("decode-0", lambda view: not view.rooms and not view.running)
        log = cluster.log
    assert statuses["completion"] == statuses["stop string"] == statuses["chat"] == 200
    assert {status for status in statuses.values() if status >= 500} == set()
    assert MARKER not in log
    ids = ",".join(str(byte) for byte in MARKER.encode())
    assert ids not in log.replace(" ", "")
    assert "prefill-0" in log
    assert "from-afar" in log  # a name for logs, within bounds, is the only word of a client in them
    if log_format == "json":
        lines = [json.loads(line) for line in log.splitlines()]
        assert {line["role"] for line in lines} == {"serve", "router", "prefill", "decode"}
        assert all({"ts", "level", "worker", "logger", "msg"} <= line.keys() for line in lines)
        assert any(line["msg"] == "ready" and line["address"] == cluster.url for line in lines)
