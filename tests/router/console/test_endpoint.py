"""`/console` over HTTP: nothing without the key; with it the page and its data, and nothing from elsewhere."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from quiesce.protocol.dispatch import PageRange, RoomView, WorkerSnapshot
from quiesce.router.console import endpoint
from tests.router.conftest import Deployment
from tests.router.conftest import deployment as deployment

KEY = "the-key-of-the-console"
BEARER = {"authorization": f"Bearer {KEY}"}
NASTY = "<script>alert(1)</script>"


def held(deployment: Deployment, request: str = "req-1") -> None:
    """Decode holds the pages of one request."""
    decode = deployment.decode
    decode.snapshot = WorkerSnapshot(
        worker="decode-0",
        role="decode",
        incarnation=decode.incarnation,
        pages={"free": 250, "held": 6},
        page_size=16,
        ranges=(PageRange(0, 9, "free"), PageRange(10, 15, "held", request), PageRange(16, 255, "free")),
        rooms=(RoomView(request, 7, "holding", 6, 2.5, (f"0@{deployment.prefill.incarnation[:8]}",)),),
        running=3,
        waiting=1,
    )


async def started(deployment: Deployment, **settings: Any) -> httpx.AsyncClient:
    return await deployment.start(console_key=KEY, **settings)


async def test_without_a_key_there_is_no_console(deployment: Deployment) -> None:
    client = await deployment.start()
    for path in ("/console", "/console/data"):
        assert (await client.get(path)).status_code == 404


async def test_nothing_is_told_without_the_key(deployment: Deployment) -> None:
    held(deployment)
    client = await started(deployment, api_key=("an-api-key",))
    for headers in ({}, {"authorization": "Bearer an-api-key"}, {"cookie": "quiesce_console=x"}):
        page, data = await client.get("/console", headers=headers), await client.get("/console/data", headers=headers)
        assert data.status_code == 401
        assert data.json()["error"]["code"] == "invalid_console_key"
        assert 'type="password"' in page.text
        assert "req-1" not in page.text + data.text
        assert "decode-0" not in page.text + data.text


async def test_the_form_opens_a_session_and_leave_ends_it(deployment: Deployment) -> None:
    held(deployment)
    client = await started(deployment)
    wrong = await client.post("/console", data={"key": f"{KEY}x"})
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    assert 'role="alert"' in wrong.text
    right = await client.post("/console", data={"key": KEY})
    assert (right.status_code, right.headers["location"]) == (303, "/console")
    assert "req-1" in (await client.get("/console")).text
    assert (await client.get("/console/data")).status_code == 200
    session = dict(client.cookies)
    await client.post("/console/leave")
    client.cookies.update(session)
    assert (await client.get("/console/data")).status_code == 401


@pytest.mark.parametrize("body", [b"", b"key", b"key=", b"other=1", b"\xff=\xff", b"key=%ff", b"{}"])
async def test_odd_forms_are_wrong_keys(deployment: Deployment, body: bytes) -> None:
    client = await started(deployment)
    assert (await client.post("/console", content=body)).status_code == 401


async def test_a_large_form_is_refused(deployment: Deployment) -> None:
    client = await started(deployment)
    assert (await client.post("/console", content=b"key=" + b"x" * 5000)).status_code == 413


async def test_the_data(deployment: Deployment) -> None:
    held(deployment)
    client = await started(deployment)
    data = (await client.get("/console/data", headers=BEARER)).json()
    assert data["ready"] is True
    assert data["maps"]["decode-0"] == {
        "pages": 256,
        "pages_per_cell": 1,
        "runs": [0, 10, 4, 6, 0, 240],
        "owners": [[10, 15, 4, "req-1"]],
    }
    assert data["figures"]["held"] == data["figures"]["decode-0.held"] == "6"
    assert "prefill-0 (0@" in data["fragments"]["holds"]["html"]
    assert "does not answer" in data["fragments"]["pools"]["html"]  # prefill has no snapshot here
    assert len(data["tokens"]) == 120


async def test_the_page_works_without_scripts(deployment: Deployment) -> None:
    held(deployment)
    client = await started(deployment)
    page = (await client.get("/console", headers=BEARER)).text
    for words in ("req-1", "holding", "2.5 s", "drained or fenced", "decode-0", "250", "Holds"):
        assert words in page


async def test_nothing_comes_from_elsewhere_and_nothing_is_kept(deployment: Deployment) -> None:
    """No address but its own; only the page's own style and script may run, and no cache keeps it."""
    held(deployment)
    client = await started(deployment)
    for response in (await client.get("/console", headers=BEARER), await client.get("/console")):
        assert not re.search(r"""(src|href|action)=["']?(https?:|//)""", response.text)
        assert "url(" not in response.text
        policy = response.headers["content-security-policy"]
        nonces = set(re.findall(r'nonce="([^"]+)"', response.text))
        assert len(nonces) == 1
        assert f"script-src 'nonce-{nonces.pop()}'" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<[^>]+\s(style|on\w+)=", response.text)
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-frame-options"] == "DENY"


async def test_what_workers_say_is_text(deployment: Deployment) -> None:
    """A worker is trusted with pages, not with the operator's browser."""
    held(deployment, NASTY)
    client = await started(deployment)
    page = (await client.get("/console", headers=BEARER)).text
    assert NASTY not in page
    assert "&lt;script&gt;" in page
    assert NASTY not in (await client.get("/console/data", headers=BEARER)).json()["fragments"]["holds"]["html"]


async def test_many_looks_at_once_cost_one(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FRESH_S", 3600.0)
    held(deployment)
    client = await started(deployment)
    first = (await client.get("/console/data", headers=BEARER)).json()
    assert deployment.decode.snapshot is not None
    deployment.decode.snapshot = None  # who asks again now would wait for an answer
    assert (await client.get("/console/data", headers=BEARER)).json() == first
