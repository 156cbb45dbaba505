"""The incident's race on real processes: a donor is aborted while a write of its is under way, a victim comes next."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.fault_socket import FaultControl
from quiesce.lab.faults import Held, Hold, Landed, LetGo
from quiesce.protocol.dispatch import PageRange, WorkerSnapshot

PREFILLS = ("prefill-0", "prefill-1")
SAFE = ("--hold-deadline-s", "30")
UNSAFE = ("--hold-deadline-s", "0.2", "--unsafe-release-on-timeout")


class RaceReport(msgspec.Struct):
    """What happened. `donor_pages` and `victim_pages` are decode's ranges when the late write landed.

    `held` are pages that awaited a proof when the victim came: of the pool, and of what staged writes land in.
    `drained` and `unsafe` are releases during this race.
    """

    solo: Answer
    victim: Answer
    donor_pages: tuple[PageRange, ...]
    victim_pages: tuple[PageRange, ...]
    held: dict[str, int]
    drained: int
    unsafe: int

    @property
    def intact(self) -> bool:
        return self.victim.text == self.solo.text and not self.victim.error


async def race(
    cluster: Cluster, donor: dict[str, Any], victim: dict[str, Any], *, held: bool, stamp: bool
) -> RaceReport:
    """Run the race once; the same cluster may run others afterwards.

    `held`: the victim comes while the donor's pages are held, else when they were given back. `stamp`: whether the late
    write also stamps its tags, or only its bytes land.

    The cluster has two prefill workers and one decode worker, all of the laboratory.
    """
    async with Client(cluster.url) as client:
        solo = await client.ask(victim)
        drained, unsafe = await _releases(client)
        holder, donor_view = await _abort_mid_write(cluster, client, donor, held=held)
        after = await cluster.snapshot("decode-0")
        answer, victim_view = await _answer_while_landing(cluster, client, victim, holder, stamp=stamp)
        await cluster.until("decode-0", lambda view: not view.rooms)
        drained_now, unsafe_now = await _releases(client)
        report = RaceReport(
            solo=solo,
            victim=answer,
            donor_pages=_owned(donor_view, "held", "reserved"),
            victim_pages=_owned(victim_view, "used"),
            held={"pages": after.pages["held"], "landing": after.landing.get("held", 0)},
            drained=drained_now - drained,
            unsafe=unsafe_now - unsafe,
        )
        holder.close()
        return report


async def _releases(client: Client) -> tuple[int, int]:
    """Of decode so far, those by a drain's acknowledgement; of all so far, those without proof."""
    drained = await client.metric("quiesce_releases_total", role="decode", proof="drained")
    return int(drained), int(await client.metric("quiesce_unsafe_releases_total"))


async def _abort_mid_write(
    cluster: Cluster, client: Client, donor: dict[str, Any], *, held: bool
) -> tuple[FaultControl, WorkerSnapshot]:
    """Hold the donor's first write open and let its client leave; the prefill that holds it, and decode then."""
    controls = [await cluster.faults(name) for name in PREFILLS]
    for control in controls:
        await control.order(Hold())
    asking = asyncio.create_task(client.ask(donor))
    waits = [asyncio.create_task(control.wait_for(Held)) for control in controls]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    holder = next(control for control, wait in zip(controls, waits, strict=True) if wait.done())
    before = await cluster.snapshot("decode-0")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    for control, wait in zip(controls, waits, strict=True):
        if control is not holder:
            wait.cancel()
            await asyncio.gather(wait, return_exceptions=True)
            await control.order(LetGo())
            control.close()
    await cluster.until("decode-0", _is_held if held else _is_given_back)
    return holder, before


def _is_held(view: WorkerSnapshot) -> bool:
    return [room.state for room in view.rooms] == ["holding"]


def _is_given_back(view: WorkerSnapshot) -> bool:
    return not view.rooms


async def _answer_while_landing(
    cluster: Cluster, client: Client, victim: dict[str, Any], holder: FaultControl, *, stamp: bool
) -> tuple[Answer, WorkerSnapshot]:
    """Start the victim; at its first word let the donor's write land; read on to the end."""
    answer, view = Answer(), None
    async for _ in client.pieces(victim, answer):
        if view is None:
            view = await cluster.snapshot("decode-0")
            await holder.order(LetGo(stamp=stamp))
            await holder.wait_for(Landed)
    return answer, view or await cluster.snapshot("decode-0")


def _owned(view: WorkerSnapshot, *states: str) -> tuple[PageRange, ...]:
    return tuple(each for each in view.ranges if each.state in states)
