"""Workers that announce themselves: nobody stands in another's place, and who will not fit whom is told at once."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce.control.address import Address, TcpAddress, parse_address, show_address
from quiesce.control.connection import Identity
from quiesce.control.frames import pack
from quiesce.control.security import LOCAL
from quiesce.ids import Incarnation
from quiesce.protocol.dispatch import DISPATCH_VERSION
from quiesce.protocol.hello import PROTOCOL_VERSION, Capabilities, Hello
from quiesce.protocol.registration import Register
from quiesce.router.own_places import MOST_FOUND, OwnPlaces
from quiesce.router.roster import Roster
from quiesce.worker.registering import Registrations
from tests.control.hellos import DECODE, PREFILL
from tests.control.trial import shows

from .conftest import Deployment
from .door import Door, Told, announced, logged, until
from .fake_worker import FakeWorker, nothing

SAID = Register(DISPATCH_VERSION, "prefill", "prefill-0", Incarnation("a" * 32), "tcp://10.0.0.2:9001", "tiny")
THERE = Identity("certificate p0", ("prefill",), ("10.0.0.2", "prefill-0.example.org", "*.pool.example.org"))
NEXT = PROTOCOL_VERSION + 1


def said(**changes: Any) -> Register:
    return msgspec.structs.replace(SAID, **changes)


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    with tempfile.TemporaryDirectory(prefix=f"q{secrets.token_hex(2)}") as directory:
        yield Door(Path(directory))


async def eventually(door: Door, true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - what is told to nobody awakes nobody
            await asyncio.sleep(0.005)


# ---------------------------------------------------------------- one address, one worker


@pytest.mark.parametrize(
    ("mine", "spelled"),
    [
        ("tcp://127.0.0.1:9001", "tcp://localhost:9001"),
        ("tcp://127.0.0.1:9001", "tcp://[::ffff:127.0.0.1]:9001"),
        ("tcp://[2001:db8::1]:9001", "tcp://[2001:DB8:0::1]:9001"),
        ("tcp://prefill-0.example.org:9001", "tcp://PREFILL-0.example.ORG:9001"),
        ("tcp://10.0.0.2:9001", "tcp://10.0.0.2:09001"),
    ],
)
def test_an_address_that_is_spelled_otherwise_is_the_same(mine: str, spelled: str) -> None:
    roster, anybody = Roster("tiny"), Identity("host")
    roster.enter(said(address=mine), anybody).proved = True
    for address in (mine, spelled):
        problem = roster.why_not(said(worker="prefill-1", address=address), anybody, local=False)
        assert problem == f"{address} is the address of prefill-0"


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "prefill-0.", "[fe80::1%eth0]"])
def test_what_only_a_resolver_takes_for_an_address_is_refused(host: str) -> None:
    assert Roster("tiny").why_not(said(address=f"tcp://{host}:9001"), Identity("host"), local=False)


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("10.0.0.2", True),
        ("[::ffff:10.0.0.2]", True),
        ("Prefill-0.Example.org", True),
        ("a.pool.example.org", True),
        ("a.b.pool.example.org", False),
        ("pool.example.org", False),
        ("10.0.0.3", False),
        ("prefill-1.example.org", False),
    ],
)
def test_a_certificate_says_at_which_hosts_its_owner_may_be(host: str, fits: bool) -> None:
    problem = Roster("tiny").why_not(said(address=f"tcp://{host}:9001"), THERE, local=False)
    assert ("its certificate is for 10.0.0.2, prefill-0.example.org" in problem) is not fits
    assert bool(problem) is not fits


def liar(where: str, address: Address) -> Registrations:
    """A worker that says that it is dialled where another one is."""
    who = msgspec.structs.replace(SAID, worker="liar", address=where)
    return Registrations(who, [address], LOCAL, Told())


@pytest.mark.parametrize("spelled", ["p.sock", "alias.sock"])
async def test_who_is_not_where_it_says_gives_way_to_who_is(
    door: Door, spelled: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It came first, under the same address or one that only the file system knows to be the same."""
    worker = FakeWorker(door.directory / "p.sock", "prefill-0", "prefill", nothing)
    (door.directory / "alias.sock").symlink_to(worker.path)
    async with door.opened() as address:
        shadow = liar(f"unix:{door.directory / spelled}", address)
        await eventually(door, lambda: door.counts["registered"] == 1)
        told = Told()
        decode = FakeWorker(door.directory / "d.sock", "decode-0", "decode", nothing)
        await decode.start()
        others = [announced(decode, address, told)]
        await worker.start()
        await logged(caplog, "a worker is refused")
        assert f"{door.directory / spelled} is where prefill-0 answers" in door.fleet.objections.refused["liar"]
        others.append(announced(worker, address))
        await told.until({"prefill-0": worker.address})
        await until(door.fleet, "decode-0", "prefill-0")
        assert [link.address for link in door.fleet.present if link.name == "prefill-0"] == [worker.path]
        assert [objection.worker for objection in door.fleet.objections.listed()] == ["liar"]
        for each in (shadow, *others):
            await each.close()
    await worker.stop()
    await decode.stop()
    assert {name for places in told.heard for name in places} == {"prefill-0"}


async def test_who_is_named_in_another_way_is_not_displaced_by_who_registers_there(door: Door) -> None:
    worker = FakeWorker(door.directory / "p.sock", "prefill-0", "prefill", nothing)
    door.where.say("--worker", {worker.path: ""})
    async with door.opened() as address:
        shadow = liar(worker.address, address)
        await eventually(door, lambda: door.counts["registered"] == 1)
        await worker.start()
        await until(door.fleet, "prefill-0")
        await eventually(door, lambda: door.counts["refused"] >= 2)
        assert [link.name for link in door.fleet.present] == ["prefill-0"]
        await shadow.close()
    await worker.stop()


@pytest.mark.parametrize("spelled", ["registered", "named"])
async def test_who_is_named_under_another_spelling_of_its_own_address_is_not_refused(door: Door, spelled: str) -> None:
    worker = FakeWorker(door.directory / "p.sock", "prefill-0", "prefill", nothing)
    (door.directory / "further").mkdir()
    otherwise = door.directory / "further" / ".." / "p.sock"
    door.where.say("--worker", {otherwise if spelled == "named" else worker.path: ""})
    await worker.start()
    async with door.opened() as address:
        await until(door.fleet, "prefill-0")
        if spelled == "registered":
            worker.path = otherwise
        registrations = announced(worker, address)
        await eventually(door, lambda: door.counts.total() > 0)
        assert door.counts == {"registered": 1}
        await registrations.close()
    await worker.stop()


@pytest.mark.parametrize("known", [True, False])
async def test_who_says_that_it_is_dialled_where_this_router_listens_is_refused(door: Door, known: bool) -> None:
    """Also where only dialling shows it, as with a name that leads there."""
    door.fleet.security = shows("router")
    async with door.opened(shows("router"), TcpAddress("127.0.0.1", 0)) as address:
        if not known:
            door.registry.own = OwnPlaces()
        where = show_address(address).replace("127.0.0.1", "localhost")
        who = msgspec.structs.replace(SAID, address=where)
        registrations = Registrations(who, [address], shows("prefill-0"), Told())
        await eventually(door, lambda: "prefill-0" in door.fleet.objections.refused)
        why = door.fleet.objections.refused["prefill-0"]
        assert (
            why == f"{where} is this router's own --control-listen, where no worker can be: --advertise another address"
        )
        assert door.counts["registered"] == (0 if known else 1)
        await eventually(door, lambda: not door.fleet.links)
        await eventually(door, lambda: door.counts["refused"] >= 2)  # it tries again, and is not dialled any more
        assert door.counts["registered"] == (0 if known else 1)
        await registrations.close()


async def test_a_socket_file_that_leads_to_this_routers_own_is_refused(door: Door) -> None:
    (door.directory / "alias.sock").symlink_to(door.directory / "c.sock")
    async with door.opened() as address:
        shadow = liar(f"unix:{door.directory}/alias.sock", address)
        await eventually(door, lambda: "liar" in door.fleet.objections.refused)
        assert "is this router's own --control-listen" in door.fleet.objections.refused["liar"]
        assert not door.counts["registered"]
        await shadow.close()


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("tcp://127.0.0.1:9000", True),
        ("tcp://localhost:9000", True),
        ("tcp://[::1]:9000", False),
        ("tcp://127.0.0.1:9001", False),
        ("tcp://10.0.0.1:9000", False),
        ("unix:/run/q/c.sock", False),
    ],
)
def test_a_router_that_listens_everywhere_is_at_this_hosts_own_addresses(address: str, is_own: bool) -> None:
    own = OwnPlaces()
    own.listens_at(parse_address("tcp://0.0.0.0:9000"))
    assert own.holds(parse_address(address)) is is_own
    for number in range(MOST_FOUND + 1):
        own.find(TcpAddress(f"r{number}.example.org", 9000))
    assert not own.holds(TcpAddress("r0.example.org", 9000))
    assert own.holds(TcpAddress("r1.example.org", 9000))


# ---------------------------------------------------------------- matched at once


def of(worker: FakeWorker, template: Hello, **changes: Any) -> bytes:
    who = {"worker": worker.name, "incarnation": worker.incarnation}
    return pack(msgspec.structs.replace(template, **who, **changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": NEXT}, f"protocol version differs: decode-0 has {PROTOCOL_VERSION}, prefill-1 has {NEXT}"),
        ({"model_fingerprint": "x"}, "model differs: decode-0 has m, prefill-1 has x"),
        ({"layout_fingerprint": "x"}, "KV layout differs: decode-0 has l, prefill-1 has x"),
        ({"payload_digest": "blake2b"}, "payload digest setting differs: decode-0 has , prefill-1 has blake2b"),
        ({"transport": "tcp"}, "transport differs: decode-0 has shm, prefill-1 has tcp"),
    ],
)
async def test_who_does_not_fit_whom_is_told_at_registration(
    door: Door, changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Both and the router say it, and decode does not even hear where the other one is."""
    decode = FakeWorker(door.directory / "d.sock", "decode-0", "decode", nothing)
    old, new = (FakeWorker(door.directory / f"p{n}.sock", f"prefill-{n}", "prefill", nothing) for n in (0, 1))
    told = Told()
    caplog.set_level("INFO")
    async with door.opened() as address:
        for worker in (decode, old, new):
            await worker.start()
        registered = [
            announced(decode, address, told, hello=of(decode, DECODE)),
            announced(old, address, hello=of(old, PREFILL)),
            announced(new, address, hello=of(new, PREFILL, **changes)),
        ]
        await until(door.fleet, "decode-0", "prefill-0", "prefill-1")
        await told.until({"prefill-0": old.address})
        await eventually(door, lambda: caplog.messages.count("a pair is not formed") == 3)
        (objection,) = door.fleet.objections.listed()
        assert (objection.worker, objection.peer) == ("decode-0", "prefill-1")
        assert objection.reason.startswith(why)
        assert objection.since.endswith("Z")
        assert f"decode-0 with prefill-1: {why}" in door.fleet.why_no_pair()
        await registered.pop().leave()
        await eventually(door, lambda: door.fleet.objections.listed() == ())
        for each in registered:
            await each.close()
    for worker in (decode, old, new):
        await worker.stop()
    assert all("prefill-1" not in places for places in told.heard)


async def test_each_pair_that_is_not_formed_is_told_of_however_many_there_are(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Restraint is with what comes again, and these do not."""
    decode = FakeWorker(door.directory / "d.sock", "decode-0", "decode", nothing)
    others = [FakeWorker(door.directory / f"p{n}.sock", f"prefill-{n}", "prefill", nothing) for n in range(12)]
    async with door.opened() as address:
        registered = [announced(each, address, hello=of(each, PREFILL, version=NEXT)) for each in others]
        registered.append(announced(decode, address, hello=of(decode, DECODE)))
        await eventually(door, lambda: caplog.messages.count("a pair is not formed") >= 3 * len(others))
        for each in registered:
            await each.close()
    assert caplog.messages.count("a pair is not formed") == 3 * len(others), (
        "the router, decode, and each prefill worker"
    )


def test_a_router_that_cannot_read_what_two_say_of_themselves_lets_them_find_out() -> None:
    """A version that it does not know: only that they differ from others is sure."""
    roster, anybody = Roster("tiny"), Identity("host")
    for hello, port in ((PREFILL, 1), (DECODE, 2)):
        future = pack({**msgspec.to_builtins(hello), "version": NEXT, "transport": 7})
        who = said(role=hello.role, worker=hello.worker, address=f"tcp://10.0.0.2:{port}", hello=future)
        assert roster.why_not(who, anybody, local=False) == ""
        roster.enter(who, anybody)
    assert roster.unfit() == {}
    old = msgspec.structs.replace(DECODE, worker="decode-1")
    roster.enter(said(role="decode", worker="decode-1", address="tcp://10.0.0.2:3", hello=pack(old)), anybody)
    assert roster.unfit() == {
        ("decode-1", "prefill-0"): f"protocol version differs: decode-1 has {PROTOCOL_VERSION}, prefill-0 has {NEXT}"
    }
    roster.enter(said(role="decode", worker="decode-2", address="tcp://10.0.0.2:4"), anybody)
    assert len(roster.unfit()) == 1, "who says nothing is found out in HELLO"


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({"capabilities": Capabilities()}, "neither drain_ack nor fence at prefill-0"),
        ({"transfer": "pull"}, "has no pull at prefill-0"),
        ({"worker": "prefill-9"}, "its HELLO is of prefill prefill-9, another worker or another life"),
        ({"incarnation": Incarnation("9" * 32)}, "another worker or another life"),
        ({"role": "decode"}, "its HELLO is of decode prefill-0"),
        ({"transport": "\x1b[2J"}, "its HELLO has characters that cannot be printed"),
        ({"version": NEXT, "worker": "\u202e0-lliferp"}, "its HELLO has characters that cannot be printed"),
    ],
)
def test_who_could_be_paired_with_nobody_is_refused(hello: dict[str, Any], why: str) -> None:
    greeted = msgspec.structs.replace(PREFILL, incarnation=SAID.incarnation)
    assert Roster("tiny").why_not(said(hello=pack(greeted)), THERE, local=False) == ""
    wrong = said(hello=pack(msgspec.structs.replace(greeted, **hello)))
    assert why in Roster("tiny").why_not(wrong, THERE, local=False)


# ---------------------------------------------------------------- what people see


async def test_a_worker_that_comes_and_goes_fills_no_log(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    worker = FakeWorker(door.directory / "p.sock", "prefill-0", "prefill", nothing)
    await worker.start()
    async with door.opened() as address:
        for count in range(1, 251):
            registrations = announced(worker, address, told := Told())
            await told.until({})
            await registrations.leave()
            await eventually(door, lambda count=count: door.counts["left"] == count)  # type: ignore[misc]
    await worker.stop()
    assert door.counts == {"registered": 250, "left": 250}
    lines = [record for record in caplog.records if record.name.startswith("quiesce.router")]
    assert len(lines) < 40


async def test_readiness_and_metrics_tell_who_is_refused(deployment: Deployment) -> None:
    """Also while others serve, and with the reason and since when."""
    path = deployment.directory / "control.sock"
    client = await deployment.start(control_listen=f"unix:{path}")
    assert (await client.get("/readiness")).json() == {"status": "ready"}
    other = deployment.worker("prefill-9", "prefill")
    who = Register(DISPATCH_VERSION, "prefill", "prefill-9", other.incarnation, other.address, "another model")
    registrations = Registrations(who, [path], LOCAL, Told())
    async with asyncio.timeout(20):
        while "refused" not in (told := (await client.get("/readiness")).json()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)
    await registrations.close()
    assert told["status"] == "ready"
    (refused,) = told["refused"]
    assert refused.pop("since").endswith("Z")
    assert refused == {
        "worker": "prefill-9",
        "reason": "model differs: the router has tiny, prefill-9 serves another model",
    }
    metrics = (await client.get("/metrics")).text
    assert 'quiesce_unfit{role="router",unfit="worker",worker="router"} 1.0' in metrics
    assert 'quiesce_registrations_total{outcome="refused",role="router",worker="router"}' in metrics
