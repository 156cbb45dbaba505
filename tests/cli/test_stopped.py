"""A prefill worker on another host is stopped (SIGSTOP) under load: nothing crashes or is closed, and others serve.

It is put out of use when it has not answered for six seconds; what it had is tried elsewhere; after SIGCONT it is used
again; and none of its late writes gets in anywhere.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from .hosts import Processes, two_hosts
from .two_prefills import USED_AGAIN_S, TwoPrefills

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_NIGHTLY = pytest.mark.skipif("QUIESCE_NIGHTLY" not in os.environ, reason="make nightly: it takes more than a minute")


def stopped_for(seconds: float, *, clients: int = 6) -> None:
    with two_hosts() as (near, far), Processes() as processes:
        deployment = TwoPrefills(processes, near, far)
        deployment.ready()
        with deployment.load(clients) as load:
            load.more(4 * clients)
            processes.signal("prefill-0", signal.SIGSTOP)
            stopped_s = time.monotonic()
            processes.logged("router", '"worker does not answer" worker_name=prefill-0')
            out_s = time.monotonic() - stopped_s
            load.more(4 * clients)
            time.sleep(max(0.0, seconds - (time.monotonic() - stopped_s)))
            load.more(4 * clients)
            before = len(load.answers)
            processes.signal("prefill-0", signal.SIGCONT)
            again_s = deployment.used_again("prefill-0")
            load.more(4 * clients)
        longest_s = deployment.all_right(load)
        print(
            f"{len(load.answers)} answers, {before} before SIGCONT, none failed; out of use after {out_s:.1f} s,"
            f" used again {again_s:.2f} s after SIGCONT; the longest answer took {longest_s:.1f} s"
        )
        assert again_s < USED_AGAIN_S
        deployment.settled()


def test_others_serve_while_a_prefill_worker_is_stopped() -> None:
    """For as long as it takes the router to see it."""
    stopped_for(0.0)


@_NIGHTLY
def test_others_serve_while_a_prefill_worker_is_stopped_for_a_minute() -> None:
    stopped_for(60.0)
