"""Pages in quarantine: nobody waits for ever for what they leave no room for, and nobody else is held up by it."""

from __future__ import annotations

from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.protocol.dispatch import WorkerSnapshot

from .asking import BOTH
from .house import House
from .rig import PAGE, Rig, prompt_ids


def quarantine(allocator: PageAllocator, pages: int) -> None:
    allocator.allocate(pages, "a late write", PageState.QUARANTINED)


async def test_a_sequence_that_can_never_grow_again_ends() -> None:
    """Eight pages, three in quarantine: an answer that needs a sixth page fails when it gets there, not never."""
    rig = Rig(pages=8)
    quarantine(rig.allocator, 3)
    sequence = rig.begin("long", prompt_ids(2 * PAGE), max_tokens=8 * PAGE)
    await rig.run()
    assert rig.said.failures[sequence.request].code == "pool_quarantined"
    assert len(rig.said.tokens[sequence.request]) == 3 * PAGE + 1
    assert (rig.count(PageState.FREE), rig.count(PageState.QUARANTINED)) == (5, 3)
    rig.close()


async def test_a_retracted_sequence_that_can_never_return_ends() -> None:
    """Pages go into quarantine while it is away: it fails, and the one it made room for goes on."""
    rig = Rig(pages=12)
    first = rig.begin("first", prompt_ids(3 * PAGE, 1), max_tokens=3 * PAGE)
    second = rig.begin("second", prompt_ids(6 * PAGE, 2), max_tokens=6 * PAGE)
    while rig.batch.retracted == 0:
        await rig.batch.step()
    quarantine(rig.allocator, 6)
    await rig.run()
    assert rig.said.finish[first.request] == "length"
    assert rig.said.failures[second.request].code == "pool_quarantined"
    rig.close()


def states(view: WorkerSnapshot) -> list[str]:
    return [room.state for room in view.rooms]


async def test_quarantined_attempts_leave_seats_for_others(house: House) -> None:
    """A frozen writer's attempts keep their pages and seats; another prefill's requests are served all the same."""
    frozen = await house.prefill(transfer_threads=6)
    await house.prefill("prefill-1")
    both = ("prefill-0", "prefill-1")
    await house.decode(peers=both, max_running_requests=1, hold_deadline_s=0.02, quarantine_budget=1.0)
    frozen.writes.hold(count=6)
    for _ in range(6):
        ask = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
        await frozen.writes.held()
        house.desk.cancel(ask, *BOTH)
    await house.desk.shows("decode-0", lambda view: states(view) == ["quarantined"] * 6)
    after = house.desk.ask(prompt_ids(14), "prefill-1", "decode-0", prefill="prefill-1", max_tokens=6)
    await after.answers(6)
    frozen.writes.let_go()
    await house.empty()


async def test_a_prompt_that_quarantine_leaves_no_room_for_is_refused_and_blocks_nobody(house: House) -> None:
    """On both sides: 503 at the door, so that the router may go elsewhere; a small prompt behind it is served."""
    prefill = await house.prefill(quarantine_budget=1.0)
    decode = await house.decode(quarantine_budget=1.0)
    for member in (prefill, decode):
        allocator = member.worker.parts.allocator
        quarantine(allocator, allocator.pages - 8)
        large = house.desk.ask(prompt_ids(9 * PAGE), *BOTH, max_tokens=6)
        assert await large.end(member.name) == "pool_quarantined"
        small = house.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
        await small.answers(6)
