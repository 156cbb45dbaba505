"""The race with the roles exchanged (`--transfer pull`): a read comes late, and prefill's pages may have another owner.

One prefill worker and one decode worker, of the laboratory. The lender holds the slow user's read before it takes a
byte; meanwhile another user's prompt is computed, whole, and answered; then the read goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.faults import Held, Hold, Landed, LetGo
from quiesce.protocol.dispatch import PageRange, WorkerSnapshot

FLAGS = ("--deterministic", "--prefix-cache", "off", "--transport", "tcp", "--transfer", "pull")


class LendingReport(msgspec.Struct):
    """What happened. `slow` is the answer whose read came late, `solo` the same one alone.

    `lent` are prefill's ranges that are not free while the read waits, before the other user comes.
    """

    solo: Answer
    slow: Answer
    other: Answer
    lent: tuple[PageRange, ...]

    @property
    def intact(self) -> bool:
        return self.slow.text == self.solo.text and not self.slow.error


async def lending_race(cluster: Cluster, slow: dict[str, Any], other: dict[str, Any]) -> LendingReport:
    """Run the race once."""
    async with Client(cluster.url) as client:
        solo = await client.ask(slow)
        await cluster.until("prefill-0", lambda view: not view.rooms)
        lender = await cluster.faults("prefill-0")
        await lender.order(Hold())
        asking = asyncio.create_task(client.ask(slow))
        await lender.wait_for(Held)
        lent = _taken(await cluster.snapshot("prefill-0"))
        beside = await client.ask(other)
        await lender.order(LetGo())
        await lender.wait_for(Landed)
        return LendingReport(solo, await asking, beside, lent)


def _taken(view: WorkerSnapshot) -> tuple[PageRange, ...]:
    return tuple(each for each in view.ranges if each.state != "free")
