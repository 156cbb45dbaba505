"""The network between two hosts fails under load: cut, deaf in one way, slow, half open. Who is reached serves on."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import pytest

from .hosts import Cable, Processes, two_namespaces, why_no_namespaces
from .two_prefills import USED_AGAIN_S, TwoPrefills

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NIGHTLY = pytest.mark.skipif("QUIESCE_NIGHTLY" not in os.environ, reason="make nightly: half a minute for each")
CLIENTS = 4
NOTICED_S = 10.0
"""How long a request may take whose worker is lost while another one is there: it is begun anew there after 4 to 6."""


class Net:
    """A deployment of two prefill workers, and the cable to the far one."""

    def __init__(self, processes: Processes, deployment: TwoPrefills, cable: Cable) -> None:
        self.processes, self.deployment, self.cable = processes, deployment, cable


@contextlib.contextmanager
def opened() -> Iterator[Net]:
    """When the block fails, the logs are shown."""
    if problem := why_no_namespaces():
        pytest.skip(problem)
    with two_namespaces() as (near, far, cable), Processes() as processes:
        deployment = TwoPrefills(processes, near, far)
        deployment.ready()
        yield Net(processes, deployment, cable)


def lost_for(net: Net, lose: Callable[[], None], find: Callable[[], None]) -> None:
    """No request fails; what was at the lost worker begins anew at the other; the lost one is at work soon again."""
    deployment = net.deployment
    with deployment.load(CLIENTS) as load:
        load.more(4 * CLIENTS)
        lose()
        net.processes.logged("router", '"worker is gone" worker_name=prefill-0')
        load.more(8 * CLIENTS)
        find()
        again_s = deployment.used_again("prefill-0")
        load.more(4 * CLIENTS)
    longest_s = deployment.all_right(load)
    print(f"{len(load.answers)} answers, the longest took {longest_s:.1f} s; used again {again_s:.2f} s after")
    assert longest_s < NOTICED_S
    assert again_s < USED_AGAIN_S
    deployment.settled()


def test_a_cable_that_is_cut() -> None:
    with opened() as net:
        lost_for(net, net.cable.cut, net.cable.mend)


def test_a_cable_that_is_deaf_in_one_way() -> None:
    """What the far host hears it answers, and nobody hears that."""
    with opened() as net:
        lost_for(net, net.cable.deafen, net.cable.hear)


@NIGHTLY
def test_a_slow_cable_loses_nobody() -> None:
    with opened() as net:
        if problem := net.cable.why_not_slow():
            pytest.skip(problem)
        with net.deployment.load(CLIENTS) as load:
            net.deployment.used_again("prefill-0")
            load.more(8 * CLIENTS)
        net.deployment.all_right(load)
        assert "worker is gone" not in net.processes.log("router")
        net.deployment.settled()


def test_a_host_that_reboots_is_noticed_and_its_worker_replaced() -> None:
    """No farewell comes: connections are half open until somebody asks, and a kernel answers that knows of none."""
    with opened() as net:
        with net.deployment.load(CLIENTS) as load:
            load.more(4 * CLIENTS)
            net.cable.cut()
            net.processes.kill("prefill-0")
            net.cable.reboot()
            began_s = time.monotonic()
            net.processes.logged("router", '"worker is gone" worker_name=prefill-0')
            noticed_s = time.monotonic() - began_s
            net.deployment.start_prefill("prefill-0")
            net.processes.logged("prefill-0", "serving on", times=2)
            again_s = net.deployment.used_again("prefill-0")
            load.more(4 * CLIENTS)
        longest_s = net.deployment.all_right(load)
        print(f"noticed {noticed_s:.1f} s after the reboot; at work {again_s:.1f} s after it could be")
        assert max(noticed_s, again_s) < USED_AGAIN_S
        assert longest_s < NOTICED_S
        net.deployment.settled()


@NIGHTLY
def test_without_another_worker_requests_wait_for_the_network() -> None:
    """What had begun waits ten seconds for a pair: a partition that ends sooner costs time, and no request."""
    with opened() as net:
        net.processes.kill("prefill-1")
        net.processes.logged("router", '"worker is gone" worker_name=prefill-1')
        with net.deployment.load(CLIENTS) as load:
            load.more(4 * CLIENTS)
            net.cable.cut()
            net.processes.logged("router", '"worker is gone" worker_name=prefill-0')
            net.cable.mend()
            began_s = time.monotonic()
            load.more(CLIENTS)
            after_s = time.monotonic() - began_s
            load.more(4 * CLIENTS)
        longest_s = net.deployment.all_right(load)
        print(f"answers came {after_s:.1f} s after the network was back; the longest took {longest_s:.1f} s")
        assert after_s < USED_AGAIN_S
        net.deployment.settled()
