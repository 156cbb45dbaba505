"""Real worker processes where decode reads: lives that end, and lives that stand still, while a read is under way."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from quiesce.lab.fault_socket import FaultControl
from quiesce.lab.faults import Held, Hold, LetGo

from .asking import BOTH, Ask, is_empty
from .rig import prompt_ids
from .workers import Workers

pytestmark = pytest.mark.slow

PULL: dict[str, Any] = {"transport": "tcp", "transfer": "pull"}


async def held_read(workers: Workers, at: str, seed: int = 0) -> tuple[Ask, FaultControl]:
    """A request whose only read (of 4 pages) waits at decode, before it leaves, or at prefill, before it is served."""
    faults = await workers.faults(at)
    await faults.order(Hold())
    ask = workers.desk.ask(prompt_ids(14, seed), *BOTH, max_tokens=6)
    await faults.wait_for(Held)
    return ask, faults


async def released(workers: Workers, worker: str, proof: str) -> float:
    return await workers.desk.metric(worker, "quiesce_releases_total", f'proof="{proof}"')


async def test_prefill_killed_while_a_read_is_served(workers: Workers) -> None:
    """Its death proves nothing to decode: that its own read ended does."""
    await workers.pair(PULL, PULL)
    ask, _ = await held_read(workers, "prefill-0")
    await workers.kill("prefill-0")
    assert await ask.end("decode-0") == "transfer_failed"
    await workers.empty("decode-0")
    assert (await released(workers, "decode-0", "drained"), await released(workers, "decode-0", "fenced")) == (1, 0)
    await workers.prefill(**PULL)
    await workers.desk.paired("decode-0", "prefill-0")
    await workers.serves()


async def test_prefill_killed_before_a_read_leaves(workers: Workers) -> None:
    await workers.pair(PULL, PULL)
    ask, faults = await held_read(workers, "decode-0")
    await workers.kill("prefill-0")
    view = await workers.desk.snapshot("decode-0")
    assert view.pages["reserved"] + view.pages["held"] == 4
    await faults.order(LetGo())
    assert await ask.end("decode-0") == "transfer_failed"
    await workers.empty("decode-0")


async def test_decode_killed_while_it_reads(workers: Workers) -> None:
    """A reader that is dead for certain frees what it was lent; its next life is another one."""
    await workers.pair(PULL, PULL)
    await held_read(workers, "decode-0")
    assert [room.state for room in (await workers.desk.snapshot("prefill-0")).rooms] == ["lent"]
    await workers.kill("decode-0")
    await workers.empty("prefill-0")
    assert await released(workers, "prefill-0", "fenced") == 1
    await workers.decode(**PULL)
    await workers.desk.paired("decode-0", "prefill-0")
    await workers.serves()


async def test_a_prefill_that_stands_still_holds_decodes_pages_until_its_own_endpoint_is_closed(
    workers: Workers,
) -> None:
    """Nobody serves the read: at the hold deadline decode breaks its own side, and has its proof."""
    await workers.pair(PULL, {**PULL, "hold_deadline_s": 0.2})
    ask, faults = await held_read(workers, "prefill-0")
    workers.signal("prefill-0", signal.SIGSTOP)
    workers.desk.cancel(ask, "decode-0")
    await workers.empty("decode-0")
    assert await released(workers, "decode-0", "fenced") == 1
    workers.signal("prefill-0", signal.SIGCONT)
    faults.tell(LetGo())
    await workers.empty("prefill-0")
    await workers.serves()


async def test_a_worker_that_drains_waits_for_its_reads(workers: Workers) -> None:
    await workers.pair({**PULL, "grace_s": 30}, PULL)
    ask, faults = await held_read(workers, "prefill-0")
    workers.signal("prefill-0", signal.SIGTERM)
    await workers.desk.until(lambda: not workers.desk.ready["prefill-0"])
    await faults.order(LetGo())
    await ask.answers(6)
    assert await workers.ended("prefill-0") == 0
    await workers.desk.shows("decode-0", is_empty)
