"""What a check says, and how it says that a promise is broken."""

from __future__ import annotations

import time
from collections.abc import Callable

from quiesce.errors import PeerUnusable

LANDED, QUIESCED, IN_FLIGHT = "LANDED", "FAILED_QUIESCED", "FAILED_IN_FLIGHT"
LARGE_PAGE_BYTES, LARGE_PAGES = 64 << 10, 768
"""Together more than the queues of both kernels hold; a page is so small that whole ones wait in them."""
LOOKS = 40
SHORT_S = 1.0
FENCE_S = 20.0
"""A fence that was not told by then never is."""

Check = Callable[[str], str]


class Broken(PeerUnusable):
    """A backend was seen to break its promise."""


def expect(holds: bool, seen: object) -> None:
    if not holds:
        raise Broken(str(seen))


def expect_idle(used_s: Callable[[], float], rest: Callable[[], Callable[[], object]]) -> str:
    """`used_s` is the processor time of all actors. `rest` begins their rest; what it returns waits for its end."""
    before_s, awake = used_s(), rest()
    spun_s = _spin(SHORT_S)
    awake()
    used = used_s() - before_s
    expect(used < spun_s / 10, f"{used:.3f} s of processor time; a loop beside it that only spins got {spun_s:.3f} s")
    return f"{used * 1e3:.1f} ms of processor time in {SHORT_S:g} s"


def _spin(seconds: float) -> float:
    """What processor time one gets here who takes all there is: less than `seconds` where others want it, too."""
    began_s, until_s = time.thread_time(), time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass
    return time.thread_time() - began_s
