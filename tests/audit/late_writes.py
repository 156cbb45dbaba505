"""Makes writes late: each is held until its destination was given away and somebody else reads there."""

from __future__ import annotations

import asyncio
import contextlib

from quiesce.lab.cluster import Cluster
from quiesce.lab.faults import Held, Hold, LetGo
from quiesce.protocol.dispatch import WorkerSnapshot

GIVEN_AWAY_S = 4.0
"""A write whose destination is not given away by then is of nobody who left, and goes on."""

AT_ONCE = 3
"""Of the laboratory's four transfer threads; the last one serves those that are not held."""


async def land_late(cluster: Cluster, leaving: asyncio.Event) -> None:
    """Hold a few writes of `prefill-0` after the other while `leaving` is set, until cancelled."""
    control = await cluster.faults("prefill-0")
    while await leaving.wait():
        await control.order(Hold(count=AT_ONCE))
        await control.wait_for(Held)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVEN_AWAY_S):
                await _until_others_read(cluster)
        await control.order(LetGo())


async def _until_others_read(cluster: Cluster) -> None:
    """Until pages that were somebody's lease are in use by somebody who came later."""
    leased: dict[int, set[str]] = {}
    while True:
        view = await cluster.snapshot("decode-0")
        used = _owners(view, "used")
        if any(owner not in leased[page] for page, owner in used.items() if page in leased):
            return
        for page, owner in _owners(view, "reserved", "held").items():
            leased.setdefault(page, set()).add(owner)


def _owners(view: WorkerSnapshot, *states: str) -> dict[int, str]:
    ranges = [each for each in view.ranges if each.state in states]
    return {page: each.owner for each in ranges for page in range(each.first, each.last + 1)}
