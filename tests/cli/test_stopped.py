"""A prefill worker on another host is stopped (SIGSTOP) under load: nothing crashes or is closed, and others serve.

It is put out of use when it has not answered for six seconds; what it had is tried elsewhere; after SIGCONT it is used
again; and none of its late writes gets in anywhere.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from .hosts import Host, Load, Processes, two_hosts
from .test_hosts import BODY, CHAT, SMALL, said_by_one_engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

USED_AGAIN_S = 5.0
_NIGHTLY = pytest.mark.skipif("QUIESCE_NIGHTLY" not in os.environ, reason="make nightly: it takes more than a minute")


class Deployment:
    """prefill-0 is far; prefill-1, decode and router are near."""

    def __init__(self, processes: Processes, near: Host, far: Host) -> None:
        self._processes, self._near = processes, near
        prefills = {"prefill-0": far, "prefill-1": near}
        self._prefills = {name: f"tcp://{host.address}:{host.free_port()}" for name, host in prefills.items()}
        decode, self.port = f"tcp://{near.address}:{near.free_port()}", near.free_port()
        for name, host in prefills.items():
            processes.start(host, "prefill", name, "--name", name, "--listen", self._prefills[name], *SMALL)
        peers = [word for name, where in self._prefills.items() for word in ("--peer", f"{name}={where}")]
        named = ("--name", "decode-0", "--listen", decode, "--data-host", near.address)
        processes.start(near, "decode", "decode-0", *named, *peers, *SMALL)
        workers = [word for where in (*self._prefills.values(), decode) for word in ("--worker", where)]
        processes.start(near, "router", "router", "--host", near.address, "--port", str(self.port), *workers)

    def ready(self) -> None:
        """Both pairs have shown that they can answer."""
        for name in self._prefills:
            self._processes.logged("router", f'"a test generation came through" worker_name="{name} and decode-0"')

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that bear these labels."""
        text = self._near.ask(self.port, "/metrics")
        samples = re.findall(rf"^{name}{{(.*)}} (\S+)$", text, re.MULTILINE)
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(value) for told, value in samples if all(each in told for each in wanted))

    def handed_off_by(self, prefill: str) -> float:
        return self.metric("quiesce_releases_total", worker=prefill)

    def used_again(self, prefill: str) -> float:
        """Seconds until this worker hands off anew."""
        before, began_s = self.handed_off_by(prefill), time.monotonic()
        while self.handed_off_by(prefill) <= before:
            assert time.monotonic() - began_s < 60, f"{prefill} is not used again"
        return time.monotonic() - began_s

    def settled(self) -> None:
        """Nothing is held or in quarantine anywhere."""
        until_s = time.monotonic() + 60
        while sum(self.metric("quiesce_pages", state=state) for state in ("held", "quarantined")):
            assert time.monotonic() < until_s
            time.sleep(0.1)


def stopped_for(seconds: float, *, clients: int = 6) -> None:
    with two_hosts() as (near, far), Processes() as processes:
        deployment = Deployment(processes, near, far)
        deployment.ready()
        expected = said_by_one_engine()
        with Load(near, deployment.port, CHAT, BODY, clients) as load:
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
        failed = [answer for answer in load.answers if answer[0] != 200]
        longest_s = max(seconds for _, _, seconds in load.answers)
        print(
            f"{len(load.answers)} answers, {before} before SIGCONT, {len(failed)} failed; out of use after"
            f" {out_s:.1f} s, used again {again_s:.2f} s after SIGCONT; the longest answer took {longest_s:.1f} s"
        )
        assert failed == []
        said = {json.loads(body)["choices"][0]["message"]["content"] for _, body, _ in load.answers}
        assert said == {expected}
        assert again_s < USED_AGAIN_S
        deployment.settled()
        assert deployment.metric("quiesce_unsafe_releases_total") == 0
        assert deployment.metric("quiesce_releases_total", proof="timeout") == 0
        assert deployment.metric("quiesce_tag_mismatches_total") == 0


def test_others_serve_while_a_prefill_worker_is_stopped() -> None:
    """For as long as it takes the router to see it."""
    stopped_for(0.0)


@_NIGHTLY
def test_others_serve_while_a_prefill_worker_is_stopped_for_a_minute() -> None:
    stopped_for(60.0)
