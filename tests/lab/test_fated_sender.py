"""What arrives when a transport breaks its word, over real processes: exactly what its fate says, said as it says."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.storage import Pool
from quiesce.lab.fated_sender import FatedSender
from quiesce.lab.faults import Fate, FaultEvent, Faults, Held, Hold, Landed, LetGo
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.conformance.expectation import IN_FLIGHT, LANDED, QUIESCED
from quiesce.transport.conformance.patterns import fill, layout_of
from quiesce.transport.conformance.stage import TAG, stage
from quiesce.transport.contract import Write
from quiesce.transport.registry import backend

PEER = Peer(0, Incarnation("a" * 32))
PAGES = [1, 2, 3, 4]
SAID = {Fate.FAIL: QUIESCED, Fate.FAIL_BUT_LAND: IN_FLIGHT}
ARRIVES = {
    Fate.DROP: [False] * 4,
    Fate.TRUNCATE: [True, True, False, False],
    Fate.BITFLIP: [False, True, True, True],
    Fate.FAIL: [False] * 4,
    Fate.FAIL_BUT_LAND: [True] * 4,
}


@pytest.mark.parametrize("over", ["shm", "tcp", "example"])
@pytest.mark.parametrize("fate", Fate)
def test_a_doomed_write_meets_its_fate_and_the_next_one_does_not(over: str, fate: Fate) -> None:
    with stage(f"tests.lab.fated:{over}_{fate}") as on:
        on.arm(PAGES)
        on.launch(1, PAGES, PAGES)
        assert on.outcomes(1) == {1: SAID.get(fate, LANDED)}
        on.settled_image()
        assert on.holds(PAGES, 1, PAGES) == ARRIVES[fate]
        tags = [TAG if fate is Fate.BITFLIP or arrived else 0 for arrived in ARRIVES[fate]]
        assert on.receiver.call("tags", PAGES) == tags
        on.launch(2, PAGES, PAGES)
        assert on.outcomes(1) == {2: LANDED}
        assert on.holds(PAGES, 1, PAGES) == [True] * 4


async def test_a_backend_that_cannot_hold_a_write_is_held_from_outside() -> None:
    loop, events = asyncio.get_running_loop(), asyncio.Queue[FaultEvent]()

    def tell(event: FaultEvent) -> None:
        loop.call_soon_threadsafe(events.put_nowait, event)

    faults = Faults(tell)
    layout, shm = layout_of(4096), backend("shm")
    source, pool = Pool.private(layout, 8), Pool.shared(layout, 8, 1)
    fill(source, 1)
    receiver = shm.receiver(pool, "", 0)
    made = shm.sender(source, 1, 60.0)
    sender = FatedSender(made, lambda copy: shm.sender(copy, 1, 60.0), source, faults, waits=True)
    target = sender.open_target(*receiver.describe(PEER))
    faults.order(Hold())
    pages = np.array(PAGES, np.int32)
    ended = asyncio.Event()
    loop.add_reader(sender.completion_fd, ended.set)
    sender.launch(target, Write(1, pages, pages, PageTag(TAG)))
    while not isinstance(await events.get(), Held):
        pass
    assert not sender.completions()
    assert not pool.tags[pages].any()
    faults.order(LetGo())
    await ended.wait()
    loop.remove_reader(sender.completion_fd)
    assert [(each.id, each.outcome) for each in sender.completions()] == [(1, Outcome.LANDED)]
    while not isinstance(await events.get(), Landed):
        pass
    assert (pool.tags[pages] == TAG).all()
    sender.close()
    receiver.close()
    for each in (source, pool):
        each.close()
