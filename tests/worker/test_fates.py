"""A transport that breaks its word under real workers: no answer is made of what did not arrive, no page comes back
without a proof."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce.lab.fault_socket import FaultControl
from quiesce.lab.faults import Doom, Fate, Struck
from tests.transport.installed import skip_unless_here

from .asking import BOTH
from .rig import prompt_ids
from .workers import Workers

pytestmark = pytest.mark.slow
TRUSTING = {"data_host": "127.0.0.1", "trust_network": True}
OVER: dict[str, dict[str, Any]] = {"shm": {}, "tcp": {}, "mooncake": TRUSTING, "nixl": TRUSTING}
ENDS = {
    Fate.DROP: ["handed_off", "coverage_mismatch"],
    Fate.TRUNCATE: ["handed_off", "coverage_mismatch"],
    Fate.BITFLIP: ["handed_off", "digest_mismatch"],
    Fate.FAIL: ["transfer_failed", "transfer_failed"],
    Fate.FAIL_BUT_LAND: ["transfer_unknown", "transfer_unknown"],
}


async def ends_of_doomed(workers: Workers, faults: FaultControl, fate: Fate) -> list[str]:
    """How both halves end of a new request whose only write, of 4 pages, meets `fate`. It is not answered."""
    await faults.order(Doom(fate))
    ask = workers.desk.ask(prompt_ids(14, 1 + list(Fate).index(fate)), *BOTH, max_tokens=6)
    assert (await faults.wait_for(Struck)).fate is fate
    ends = [await ask.end(worker) for worker in BOTH]
    assert not ask.tokens
    return ends


@pytest.mark.parametrize("transport", OVER)
async def test_no_broken_word_becomes_an_answer(workers: Workers, transport: str) -> None:
    """One pair meets all and serves on. Where decode has no fence, a write of unknown fate keeps its pages."""
    skip_unless_here(transport)
    told = {"transport": transport, "payload_digest": "blake2b", **OVER[transport]}
    await workers.pair(told, told)
    faults = await workers.faults()
    for fate, ends in ENDS.items():
        assert await ends_of_doomed(workers, faults, fate) == ends, fate
        if fate is not Fate.FAIL_BUT_LAND:
            await workers.serves()
    assert await workers.desk.ask(prompt_ids(30), *BOTH, max_tokens=6).end("decode-0") == "length"
    pages = (await workers.desk.snapshot("decode-0")).pages
    assert pages["held"] == (0 if transport == "tcp" else 4)
