"""A rolling upgrade: builds of different protocol versions beside each other, and no client sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiesce import __version__
from quiesce.protocol.hello import PROTOCOL_VERSION

from .builds import build
from .hosts import Host, Load, Processes
from .test_hosts import BODY, CHAT, SMALL

pytestmark = pytest.mark.slow

NEAR, FAR = Host("127.0.0.3"), Host("127.0.0.2")
NEXT = PROTOCOL_VERSION + 1


class Fleet:
    """A router that workers of any build announce themselves to."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.port = NEAR.free_port()
        self._control = f"tcp://{NEAR.address}:{NEAR.free_port()}"
        http = ("--host", NEAR.address, "--port", str(self.port))
        processes.start(NEAR, "router", "router", *http, "--control-listen", self._control)

    def start(self, name: str, *words: str, of: Path | None = None) -> str:
        """Where the worker is dialled."""
        role, host = (name.partition("-")[0], FAR if name.startswith("prefill") else NEAR)
        where = f"tcp://{host.address}:{host.free_port()}"
        told = ("--name", name, "--listen", where, "--register", self._control)
        self._processes.start(host, role, name, *told, *words, *SMALL, build=of)
        return where

    def proved(self, prefill: str, decode: str) -> None:
        self._processes.logged("router", f'a test generation came through" worker_name="{prefill} and {decode}"')


def differs(one: str, ones: int, other: str, others: int) -> str:
    return f"protocol version differs: {one} has {ones}, {other} has {others}"


def answer_of(body: str) -> str:
    content: str = json.loads(body)["choices"][0]["message"]["content"]
    return content


def test_workers_of_a_new_build_take_over_and_no_answer_is_lost() -> None:
    """The old pair is of two builds that speak one protocol; the new pair's build speaks another one.

    Whoever sees that the new ones and the old ones must not be mixed says why. Then the old ones leave.
    """
    patched = build("__init__.py", f'"{__version__}"', '"99.0.0"')
    incompatible = build("protocol/hello.py", f"PROTOCOL_VERSION = {PROTOCOL_VERSION}", f"PROTOCOL_VERSION = {NEXT}")
    with patched as fits, incompatible as speaks_next, Processes() as processes:
        fleet = Fleet(processes)
        old = fleet.start("prefill-0", of=fits)
        fleet.start("decode-0")
        fleet.proved("prefill-0", "decode-0")
        expected = answer_of(NEAR.ask(fleet.port, CHAT, BODY))
        with Load(NEAR, fleet.port, CHAT, BODY, 1) as load:
            fleet.start("prefill-1", of=speaks_next)
            fleet.start("decode-1", "--peer", f"prefill-0={old}", of=speaks_next)
            fleet.proved("prefill-1", "decode-1")
            for name, reason in (
                ("decode-0", differs("decode-0", PROTOCOL_VERSION, "prefill-1", NEXT)),
                ("prefill-1", differs("decode-0", PROTOCOL_VERSION, "prefill-1", NEXT)),
                ("prefill-0", differs("decode-1", NEXT, "prefill-0", PROTOCOL_VERSION)),
                ("prefill-0", differs("prefill-0", PROTOCOL_VERSION, "decode-1", NEXT)),  # as HELLO found out
                ("decode-1", differs("decode-1", NEXT, "prefill-0", PROTOCOL_VERSION)),
            ):
                processes.logged(name, reason)
            told = json.loads(NEAR.ask(fleet.port, "/readiness"))
            pairs = {("decode-0", "prefill-1"), ("decode-1", "prefill-0")}
            assert {(each["worker"], each["peer"]) for each in told["refused"]} == pairs
            for each in told["refused"]:
                assert "protocol version differs" in each["reason"]
                assert each["reason"] in processes.log("router")
            for name in ("prefill-0", "decode-0"):
                load.more(2)
                assert processes.stop(name) == 0
            load.more(3)
        told = json.loads(NEAR.ask(fleet.port, "/readiness"))
        assert [each["peer"] for each in told.get("refused", ())] == ["prefill-0"], "which --peer still names"
        said = [(status, answer_of(body)) for status, body, _ in load.answers]
        assert said == [(200, expected)] * len(said)
        log = processes.log("router")
        assert not any(f"{prefill} and {decode}" in log for decode, prefill in pairs)
        assert 'level=warning role=router worker=router logger=router.link msg="worker is gone"' not in log
