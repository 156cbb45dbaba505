"""Two prefill workers, of which one is on another host than decode and the router, and what is seen of them."""

from __future__ import annotations

import json
import re
import time

from .hosts import Host, Load, Processes
from .test_hosts import BODY, CHAT, SMALL, said_by_one_engine

USED_AGAIN_S = 5.0
"""How soon a worker that can be reached again must be at work."""


class TwoPrefills:
    """prefill-0 is far; prefill-1, decode and router are near."""

    def __init__(self, processes: Processes, near: Host, far: Host) -> None:
        self._processes, self._near = processes, near
        prefills = {"prefill-0": far, "prefill-1": near}
        self._prefills = {name: f"tcp://{host.address}:{host.free_port()}" for name, host in prefills.items()}
        decode, self.port = f"tcp://{near.address}:{near.free_port()}", near.free_port()
        self._hosts = prefills
        for name in prefills:
            self.start_prefill(name)
        peers = [word for name, where in self._prefills.items() for word in ("--peer", f"{name}={where}")]
        named = ("--name", "decode-0", "--listen", decode, "--data-host", near.address)
        processes.start(near, "decode", "decode-0", *named, *peers, *SMALL)
        workers = [word for where in (*self._prefills.values(), decode) for word in ("--worker", where)]
        processes.start(near, "router", "router", "--host", near.address, "--port", str(self.port), *workers)

    def start_prefill(self, name: str) -> None:
        named = ("--name", name, "--listen", self._prefills[name])
        self._processes.start(self._hosts[name], "prefill", name, *named, *SMALL)

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
        """Seconds until this worker can be seen and hands off anew."""
        seen, began_s = 0.0, time.monotonic()
        while (now := self.handed_off_by(prefill)) <= seen or not seen:
            seen = seen or now
            assert time.monotonic() - began_s < 60, f"{prefill} is not used again"
        return time.monotonic() - began_s

    def load(self, clients: int) -> Load:
        return Load(self._near, self.port, CHAT, BODY, clients)

    def all_right(self, load: Load) -> float:
        """Every answer is what one engine says; seconds of the longest."""
        failed = [answer for answer in load.answers if answer[0] != 200]
        assert not failed, failed
        said = {json.loads(body)["choices"][0]["message"]["content"] for _, body, _ in load.answers}
        assert said == {said_by_one_engine()}
        return max(seconds for _, _, seconds in load.answers)

    def settled(self) -> None:
        """Nothing is held or in quarantine anywhere any more, and nothing was released without a proof."""
        until_s = time.monotonic() + 60
        while sum(self.metric("quiesce_pages", state=state) for state in ("held", "quarantined")):
            assert time.monotonic() < until_s
            time.sleep(0.1)
        assert self.metric("quiesce_unsafe_releases_total") == 0
        assert self.metric("quiesce_releases_total", proof="timeout") == 0
        assert self.metric("quiesce_tag_mismatches_total") == 0
