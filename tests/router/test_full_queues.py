"""Workers tell how much waits at their doors: the router stops before they have to refuse."""

from __future__ import annotations

import pytest

from quiesce.protocol.dispatch import Load

from .asking import chat, error_of
from .conftest import Deployment

MAX_QUEUE = 256
"""What fake workers say that they let wait."""


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_full_queue_is_a_429_that_no_worker_hears_of(deployment: Deployment, role: str) -> None:
    worker = {"prefill": deployment.prefill, "decode": deployment.decode}[role]
    client = await deployment.start()
    worker.send(Load(0, 0, 4096, queued=MAX_QUEUE))
    await deployment.until(lambda service: any(link.load.queued for link in service.fleet.links))
    before = (len(deployment.prefill.submits), len(deployment.decode.submits))
    response = await chat(client)
    assert error_of(response, 429)["code"] == "queue_full"
    assert (len(deployment.prefill.submits), len(deployment.decode.submits)) == before
    worker.send(Load(0, 0, 4096, queued=MAX_QUEUE - 1))
    await deployment.until(lambda service: all(link.load.queued < MAX_QUEUE for link in service.fleet.links))
    assert (await chat(client)).status_code == 200


async def test_another_pair_is_used_instead(deployment: Deployment) -> None:
    """Although it has more to do."""
    second = deployment.worker("decode-1", "decode", ("prefill-0",))
    second.load = Load(9, 9, 4096, queued=MAX_QUEUE - 1)
    deployment.decode.load = Load(0, 0, 4096, queued=MAX_QUEUE)
    deployment.workers.append(second)
    client = await deployment.start()
    await deployment.until(lambda service: sum(bool(link.load.queued) for link in service.fleet.links) == 2)
    assert (await chat(client)).status_code == 200
    assert not deployment.decode.submits
