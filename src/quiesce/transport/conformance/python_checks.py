"""Python goes on: no copy and no wait of a backend holds the interpreter's lock, and `launch` does not wait.

No time is measured. What a look saw, or a count that went on, while bytes were known to be missing still, was beside
the copy.
"""

from __future__ import annotations

import os
import time

from quiesce.transport.conformance.expectation import LANDED, LARGE_PAGE_BYTES, LARGE_PAGES, Broken, expect
from quiesce.transport.conformance.pull_checks import SOON_S
from quiesce.transport.conformance.pull_stage import PullStage, pull_stage
from quiesce.transport.conformance.pulse import Pulse, new_pulse
from quiesce.transport.conformance.stage import Actor, Stage, stage

ROUNDS = 24
"""One in which both sides were seen is enough; on a busy machine a copy may be over before anybody gets to look."""


def python_goes_on_while_pages_are_written(backend: str) -> str:
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES) as on:
        on.arm(on.all_pages())
        on.warm_up()
        _copy(on, on.writer)
        _stand_still(on, on.receiver)
    return ""


def python_goes_on_while_pages_are_read(backend: str) -> str:
    with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES) as on:
        on.lend(on.all_pages())
        on.warm_up()
        _copy(on, on.lender)
        _stand_still(on, on.lender)
    return ""


def _copy(on: Stage | PullStage, other: Actor) -> None:
    """Whose pool it is looks at pages that are coming; a thread of the other side counts meanwhile."""
    _pulse_of(other, on.target)
    first, last, looked, counted = 1, on.n_pages - 1, False, False
    for id_ in range(1, ROUNDS + 1):
        on.target.call("clear", [first, last])
        on.launch(id_, on.all_pages(), on.all_pages())
        looks, beats = on.target.call("watch_landing", first, last)
        expect(on.outcomes(1) == {id_: LANDED}, f"copy {id_} did not land")
        looked, counted = looked or looks > 0, counted or beats > 0
        if looked and counted:
            return
    whose = "where the bytes land" if not looked else "at the other side"
    raise Broken(f"in {ROUNDS} copies no Python thread went on {whose}")


def _stand_still(on: Stage | PullStage, peer: Actor) -> None:
    """`launch` comes back, a thread counts, calls are answered, and only then are ends asked: there are none.

    Or it has landed, where that takes no peer that goes on.
    """
    pulse = _pulse_of(on.launcher)
    peer.stop()
    on.launch(ROUNDS + 1, on.all_pages(), on.all_pages())
    before, until_s = pulse.beats, time.monotonic() + SOON_S
    while pulse.beats == before:
        expect(time.monotonic() < until_s, "no Python thread goes on beside a peer that stands still")
        os.sched_yield()
    on.launcher.call("cpu_s")
    ends = on.ends(1, 0.0)
    expect({outcome for _, outcome, _ in ends} <= {LANDED}, f"nothing went on before it had ended: {ends}")


def _pulse_of(actor: Actor, *also_heard_by: Actor) -> Pulse:
    fd = new_pulse()
    try:
        actor.call("beat", fds=[fd])
        for other in also_heard_by:
            other.call("hear", fds=[fd])
        return Pulse(fd)
    finally:
        os.close(fd)
