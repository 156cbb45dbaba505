"""Router and decode on one host, prefill on another: an answer is the same as from one engine, all of it over TLS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from quiesce.text.model import TextModel
from quiesce.transport.tcp import wire
from tests.worker.rig import alone

if TYPE_CHECKING:
    from tests.control.dns_server import DnsServer

from .hosts import Host, Processes, recording, two_namespaces, why_no_namespaces

pytestmark = pytest.mark.slow

SMALL = ("--pool-tokens", "256", "--context-length", "256", "--page-size", "4", "--deterministic", "--transport", "tcp")
MESSAGES = [{"role": "user", "content": "what crosses the wire?"}]
BODY = json.dumps({"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "temperature": 0, "ignore_eos": True})
CHAT = "/v1/chat/completions"


def said_by_one_engine() -> str:
    text = TextModel.load("tiny")
    ids = np.asarray(text.encode(text.render_chat(MESSAGES), add_special=False), np.int32)
    return text.decode(alone(ids, 12))


def answer(host: Host, port: int) -> str:
    content: str = json.loads(host.ask(port, CHAT, BODY))["choices"][0]["message"]["content"]
    return content


class Deployment:
    """Prefill on `far`, decode and router on `near`."""

    def __init__(self, processes: Processes, near: Host, far: Host, *more: str) -> None:
        """`more` is told both workers."""
        self._processes, self._near, self._far = processes, near, far
        self._prefill = f"tcp://{far.address}:{far.free_port()}"
        self._decode = f"tcp://{near.address}:{near.free_port()}"
        self.port, self.data_port = near.free_port(), near.free_port()
        self._told = (*SMALL, *more)
        self._data = ("--data-host", near.address, "--data-port", str(self.data_port))

    def start(self) -> None:
        self.prefill()
        self.decode("--peer", f"prefill-0={self._prefill}")
        self.router("--worker", self._prefill, "--worker", self._decode)

    def start_by_dns(self, dns: DnsServer) -> None:
        """Nobody is told an address: one name has all workers, another one those to pair with."""
        port = {name: address.rpartition(":")[2] for name, address in (("p", self._prefill), ("d", self._decode))}
        dns.host("prefill-0.quiesce.test", self._far.address)
        dns.host("decode-0.quiesce.test", self._near.address)
        prefill, decode = f"prefill-0.quiesce.test:{port['p']}", f"decode-0.quiesce.test:{port['d']}"
        dns.say("_prefill._tcp.quiesce.test", prefill)
        dns.say("_workers._tcp.quiesce.test", prefill, decode)
        server = ("--dns-server", dns.address)
        self.prefill()
        self.decode("--workers-srv", "_prefill._tcp.quiesce.test", *server)
        self.router("--workers-srv", "_workers._tcp.quiesce.test", *server)

    def start_by_registration(self) -> None:
        """The router is told nobody, and decode learns from it whom to pair with."""
        self.control = f"tcp://{self._near.address}:{self._near.free_port()}"
        self.prefill("--register", self.control)
        self.decode("--register", self.control)
        self.router("--control-listen", self.control)

    def decode(self, *peers: str) -> None:
        named = ("--name", "decode-0", "--listen", self._decode, *self._data)
        self._processes.start(self._near, "decode", "decode-0", *named, *peers, *self._told)

    def router(self, *workers: str) -> None:
        http = ("--host", self._near.address, "--port", str(self.port))
        self._processes.start(self._near, "router", "router", *http, *workers)

    def prefill(self, *words: str) -> None:
        named = ("--name", "prefill-0", "--listen", self._prefill)
        self._processes.start(self._far, "prefill", "prefill-0", *named, *words, *self._told)


def test_two_addresses_of_one_machine() -> None:
    """Runs everywhere: 127.0.0.2 and 127.0.0.3 are as strange to each other as two hosts, but for the network."""
    near, far = Host("127.0.0.3"), Host("127.0.0.2")
    with Processes() as processes:
        deployment = Deployment(processes, near, far)
        deployment.start()
        near.ask(deployment.port, "/readiness")
        assert answer(near, deployment.port) == said_by_one_engine()


def test_two_addresses_that_dns_names() -> None:
    pytest.importorskip("dns", reason="dnspython is not installed: `make setup`")
    from tests.control.dns_server import dns_server_beside

    near, far = Host("127.0.0.3"), Host("127.0.0.2")
    with dns_server_beside() as dns, Processes() as processes:
        deployment = Deployment(processes, near, far)
        deployment.start_by_dns(dns)
        near.ask(deployment.port, "/readiness")
        assert answer(near, deployment.port) == said_by_one_engine()


def test_workers_that_announce_themselves() -> None:
    """They come, are told of each other, leave cleanly, come again, and announce themselves to the next router too."""
    near, far = Host("127.0.0.3"), Host("127.0.0.2")
    with Processes() as processes:
        deployment = Deployment(processes, near, far)
        deployment.start_by_registration()
        near.ask(deployment.port, "/readiness")
        expected = said_by_one_engine()
        assert answer(near, deployment.port) == expected
        assert processes.stop("prefill-0") == 0
        assert "prefill-0" not in near.ask(deployment.port, "/readiness", status=503), (
            "it left, and nobody waits for it"
        )
        assert "a worker left" in processes.log("router")
        deployment.prefill("--register", deployment.control)
        near.ask(deployment.port, "/readiness")
        assert processes.stop("router") == 0
        deployment.router("--control-listen", deployment.control)
        near.ask(deployment.port, "/readiness")
        assert answer(near, deployment.port) == expected


def test_two_namespaces_and_a_partition() -> None:
    """Nothing but packets goes between them. The other host is lost and restarted unseen, and serves again."""
    if problem := why_no_namespaces():
        pytest.skip(problem)
    with two_namespaces() as (near, far, cable), Processes() as processes:
        deployment = Deployment(processes, near, far)
        deployment.start()
        near.ask(deployment.port, "/readiness")
        expected = said_by_one_engine()
        assert answer(near, deployment.port) == expected
        cable.cut()
        near.ask(deployment.port, "/readiness", status=503)
        processes.kill("prefill-0")
        deployment.prefill()
        cable.mend()
        near.ask(deployment.port, "/readiness")
        assert answer(near, deployment.port) == expected


def test_no_page_can_be_read_on_the_wire() -> None:
    """What the same prompt's pages are in plain, packet for packet, is nowhere in what travels by default."""
    if problem := why_no_namespaces():
        pytest.skip(problem)
    with two_namespaces() as (near, far, _):
        plain, encrypted = (on_the_wire(near, far, *told) for told in (("--data-tls", "off"), ()))
    assert wire.MAGIC in plain
    assert encrypted.startswith(b"\x16\x03\x01")  # a handshake of TLS
    pieces = {plain[at : at + 16] for at in range(0, len(plain) - 16, 16)}
    assert len(pieces) > 100
    assert len(encrypted) > len(plain)
    assert [piece for piece in pieces if piece in encrypted and piece.strip(b"\0")] == []


def on_the_wire(near: Host, far: Host, *told: str) -> bytes:
    """What came to decode's data port until one prompt was answered as by one engine."""
    with Processes() as processes:
        deployment = Deployment(processes, near, far, *told)
        with recording(near, deployment.data_port) as recorded:
            deployment.start()
            near.ask(deployment.port, "/readiness")
            assert answer(near, deployment.port) == said_by_one_engine()
            return recorded.read_bytes()
