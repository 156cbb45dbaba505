"""Workers that announce themselves: matched, refused in words, used, and gone when they leave."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce.control.address import TcpAddress, parse_address
from quiesce.control.connection import Connection, Identity
from quiesce.control.security import load_security
from quiesce.control.tcp_listener import TcpListener, open_listener
from quiesce.errors import ConfigurationError
from quiesce.ids import Incarnation, mint_incarnation
from quiesce.protocol.dispatch import DISPATCH_VERSION
from quiesce.protocol.registration import Register
from quiesce.router import registry
from quiesce.router.main import router
from quiesce.router.roster import Roster
from quiesce.router.settings import RouterSettings
from quiesce.worker.registering import Registrations
from tests.control.trial import files, shows

from .conftest import TINY
from .door import Door, Told, announced, logged, until
from .fake_worker import FakeWorker, nothing

SAID = Register(DISPATCH_VERSION, "prefill", "prefill-0", Incarnation("a" * 32), "tcp://10.0.0.2:9001", "tiny")
PREFILL_0 = Identity("certificate p0", ("prefill/prefill-0",))
ANYBODY = Identity("host 10.0.0.2")


def said(**changes: Any) -> Register:
    return msgspec.structs.replace(SAID, **changes)


# ---------------------------------------------------------------- who may be registered


@pytest.mark.parametrize(
    ("changes", "who", "why"),
    [
        ({}, PREFILL_0, ""),
        (
            {"version": 1},
            PREFILL_0,
            "version differs: the router speaks",
        ),
        ({"model": "other"}, PREFILL_0, "model differs: the router has tiny, prefill-0 serves other"),
        ({"worker": "prefill-1"}, PREFILL_0, "its certificate is for prefill/prefill-0, not for prefill/prefill-1"),
        ({"role": "decode"}, PREFILL_0, "its certificate is for prefill/prefill-0, not for decode/prefill-0"),
        ({"worker": "prefill-1"}, ANYBODY, ""),
        ({"address": "unix:/run/p.sock"}, PREFILL_0, "cannot be dialled from another host"),
        ({"address": "tcp://0.0.0.0:9001"}, PREFILL_0, "nobody can be dialled there"),
        ({"address": "tcp://10.0.0.2:0"}, PREFILL_0, "nobody can be dialled there"),
        ({"address": "http://10.0.0.2"}, PREFILL_0, "is not supported"),
        ({"worker": "p\n0"}, ANYBODY, "its name: p\\n0 is no name: printable characters without quotes"),
        ({"worker": 'p"0'}, ANYBODY, 'its name: p"0 is no name'),
        ({"worker": "p\0"}, ANYBODY, "its name: p\\x00 is no name"),
        ({"worker": "p\u202e0"}, ANYBODY, "its name: p\\u202e0 is no name"),
        ({"worker": "Präfill 0"}, ANYBODY, ""),
        ({"model": "x\x1b[2J"}, PREFILL_0, "its model's name: x\\x1b[2J is no name"),
        ({"address": "unix:/run/\x1b[2J.sock"}, PREFILL_0, "its address unix:/run/\\x1b[2J.sock has characters"),
    ],
)
def test_who_does_not_fit_is_told_why(changes: dict[str, Any], who: Identity, why: str) -> None:
    problem = Roster("tiny").why_not(said(**changes), who, local=False)
    assert why in problem
    assert bool(why) == bool(problem)


def test_a_name_belongs_to_one_worker_while_it_lives() -> None:
    roster = Roster("tiny")
    first = roster.enter(SAID, PREFILL_0)
    other = said(incarnation=Incarnation("b" * 32), address="tcp://10.0.0.3:9001")
    thief = Identity("certificate t", ("prefill",))
    assert "is registered already, at tcp://10.0.0.2:9001" in roster.why_not(other, PREFILL_0, local=False)
    assert "is registered already" in roster.why_not(SAID, thief, local=False)
    assert roster.why_not(SAID, PREFILL_0, local=False) == ""  # the same life, over a new connection
    first.lost = True
    assert roster.why_not(other, PREFILL_0, local=False) == ""
    second = roster.enter(other, PREFILL_0)
    roster.forget(first)
    assert roster.entries == {"prefill-0": second}


def test_an_address_belongs_to_one_worker_while_it_lives() -> None:
    roster = Roster("tiny")
    first = roster.enter(SAID, ANYBODY)
    other = said(worker="prefill-1")
    assert roster.why_not(other, ANYBODY, local=False) == "", "nobody has been seen there yet"
    first.proved = True
    assert roster.why_not(other, ANYBODY, local=False) == "tcp://10.0.0.2:9001 is the address of prefill-0"
    first.lost = True
    assert roster.why_not(other, ANYBODY, local=False) == ""
    second = roster.enter(other, ANYBODY)
    assert roster.at(second.address) == [first, second], "until one of them answers there"


def test_registrations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiesce.router.roster.MOST_WORKERS", 1)
    roster = Roster("tiny")
    roster.enter(SAID, ANYBODY)
    other = said(worker="prefill-1", address="tcp://10.0.0.3:1")
    assert "no more are allowed" in roster.why_not(other, ANYBODY, local=False)
    assert roster.why_not(SAID, ANYBODY, local=False) == ""


# ---------------------------------------------------------------- over connections


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    with tempfile.TemporaryDirectory(prefix=f"q{secrets.token_hex(2)}") as directory:
        yield Door(Path(directory))


async def test_a_worker_is_dialled_and_decode_hears_of_prefill_until_it_leaves(door: Door) -> None:
    prefill = FakeWorker(door.directory / "p.sock", "prefill-0", "prefill", nothing)
    decode = FakeWorker(door.directory / "d.sock", "decode-0", "decode", nothing)
    told = Told()
    async with door.opened() as address:
        for worker in (prefill, decode):
            await worker.start()
        at_decode, at_prefill = announced(decode, address, told), announced(prefill, address)
        await until(door.fleet, "decode-0", "prefill-0")
        await told.until({"prefill-0": prefill.address})
        await at_prefill.leave()
        await told.until({})
        await until(door.fleet, "decode-0")
        await at_decode.leave()
        await until(door.fleet)
        for worker in (prefill, decode):
            await worker.stop()
    assert door.places[-1] == {}


async def test_a_router_that_comes_again_is_told_again(door: Door) -> None:
    told = Told()
    worker = FakeWorker(door.directory / "d.sock", "decode-0", "decode", nothing)
    await worker.start()
    async with door.opened() as address:
        registrations = announced(worker, address, told)
        await until(door.fleet, "decode-0")
    second = Door(door.directory)
    async with second.opened():
        await until(second.fleet, "decode-0")
        await registrations.close()
    await worker.stop()


async def test_the_second_worker_of_a_name_waits_until_the_first_is_gone(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (FakeWorker(door.directory / f"{n}.sock", "prefill-0", "prefill", nothing) for n in "ab")
    for worker in (one, two):
        await worker.start()
    async with door.opened() as address:
        first = announced(one, address)
        await until(door.fleet, "prefill-0")
        second = announced(two, address)
        await logged(caplog, "a worker is refused")
        await logged(caplog, "not registered")
        assert [link.address for link in door.fleet.present] == [one.path]
        await first.close()  # lost, as by a crash, and its sockets with it
        await one.stop()
        async with asyncio.timeout(20):
            while [link.address for link in door.fleet.present] != [two.path]:
                await door.fleet.wait_for_change()
        await second.close()
    await two.stop()
    refused = [record for record in caplog.records if record.getMessage() == "a worker is refused"]
    reason = refused[0].__dict__["ids"]["reason"]
    assert reason == f"a worker prefill-0 is registered already, at unix:{one.path}"


async def test_who_was_lost_is_dialled_for_a_while_and_then_forgotten(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FORGET_S", 0.02)
    worker = FakeWorker(door.directory / "p.sock", "prefill-0", "prefill", nothing)
    await worker.start()
    async with door.opened() as address:
        registrations = announced(worker, address)
        await until(door.fleet, "prefill-0")
        await registrations.close()
        await asyncio.sleep(0.1)  # longer than FORGET_S: who is connected is not forgotten
        assert [link.name for link in door.fleet.present] == ["prefill-0"]
        await worker.stop()
        async with asyncio.timeout(20):
            while door.fleet.links:
                await door.fleet.wait_for_change()


async def test_between_hosts_a_certificate_says_who_may_register(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """Both ways: nobody registers as somebody else, and nobody takes a worker for a router."""
    async with door.opened(shows("router"), TcpAddress("127.0.0.1", 0)) as address:
        right = Register(DISPATCH_VERSION, "decode", "decode-0", mint_incarnation(), "tcp://127.0.0.1:1", "tiny")
        wrong = msgspec.structs.replace(right, worker="decode-1")
        told = Told()
        registrations = [Registrations(each, [address], shows("decode-0"), told) for each in (right, wrong)]
        await told.until({})
        await logged(caplog, "not registered")
        assert [link.address for link in door.fleet.links] == [parse_address(right.address)]
        for each in registrations:
            await each.close()
    other = Door(door.directory)
    caplog.clear()
    async with other.opened(shows("prefill-0"), TcpAddress("127.0.0.1", 0)) as address:
        registrations = [Registrations(right, [address], shows("decode-0"), told)]
        await logged(caplog, "not registered")
        assert not other.fleet.links
        await registrations[0].close()


async def test_a_worker_whose_certificate_the_routers_ca_did_not_sign_reads_so(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """In its own log: TLS 1.3 lets it in first, and then the router hangs up."""
    theirs, ours = files("decode-0", "another CA"), files("decode-0")
    stranger = load_security(theirs["tls_cert"], theirs["tls_key"], ours["tls_ca"])
    said = Register(DISPATCH_VERSION, "decode", "decode-0", mint_incarnation(), "tcp://127.0.0.1:1", "tiny")
    async with door.opened(shows("router"), TcpAddress("127.0.0.1", 0)) as address:
        registrations = Registrations(said, [address], stranger, Told())
        await logged(caplog, "not registered")
        await registrations.close()
    (why,) = why_not_registered(caplog)
    assert why.startswith("the router hung up: the other side does not know the CA that signed this process's")


async def test_a_router_that_hangs_up_without_a_word_is_said_to_doubt_the_certificate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def close(connection: Connection) -> None:
        connection.close()

    said = Register(DISPATCH_VERSION, "decode", "decode-0", mint_incarnation(), "tcp://127.0.0.1:1", "tiny")
    listener = await open_listener(TcpAddress("127.0.0.1", 0), close, shows("router"))
    assert isinstance(listener, TcpListener)
    registrations = Registrations(said, [listener.address], shows("decode-0"), Told())
    await logged(caplog, "not registered")
    await registrations.close()
    await listener.stop()
    why = "the router hung up: perhaps its --tls-ca did not sign our certificate: see its log"
    assert why_not_registered(caplog) == {why}


def why_not_registered(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {vars(each)["ids"]["reason"] for each in caplog.records if each.getMessage() == "not registered"}


async def test_a_router_shows_until_when_its_certificates_are_good() -> None:
    told: Any = files("router")
    async with router(RouterSettings(port=0, model="tiny", **told), TINY) as server:
        shown = server.service.meter.telemetry.render()
    for file in ("tls_cert", "tls_ca"):
        assert f'quiesce_certificate_expires_seconds{{file="{file}",role="router",worker="router"}} 8' in shown


async def test_a_door_on_a_network_needs_certificates() -> None:
    settings = RouterSettings(port=0, model="tiny", control_listen="tcp://127.0.0.1:0")
    with pytest.raises(ConfigurationError, match="control over TCP needs TLS"):
        async with router(settings, TINY):
            pass
