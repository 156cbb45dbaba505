"""Workers that DNS names: looked up over real packets, bounded, and nothing changes when DNS fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

pytest.importorskip("dns", reason="dnspython is not installed: `make setup`")

from quiesce.control import srv
from quiesce.control.address import Address, TcpAddress
from quiesce.control.dialing import connect
from quiesce.control.discovery import follow
from quiesce.control.srv import MOST_TTL_S, SrvLookup, check_srv, watch_srv
from quiesce.control.whereabouts import Places, Whereabouts
from quiesce.control.workers_file import NamedWorkers
from quiesce.errors import ConfigurationError, PeerUnusable
from quiesce.router.settings import RouterSettings

from .dns_server import DnsServer, dns_server
from .trial import Door, shows

NAME = "_quiesce._tcp.example.org"


@pytest.fixture
async def dns() -> AsyncIterator[DnsServer]:
    async with dns_server() as server:
        server.host("p.example.org", "127.0.0.2")
        server.host("q.example.org", "127.0.0.3")
        yield server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(srv, "LEAST_TTL_S", 0.001)
    monkeypatch.setattr(srv, "AGAIN_S", 0.001)


async def test_records_become_addresses_of_their_targets(dns: DnsServer) -> None:
    dns.say(NAME, "p.example.org:9001", "q.example.org:9002", ttl_s=7)
    found = await SrvLookup(dns.address).look(NAME)
    assert set(found.addresses) == {
        TcpAddress("p.example.org", 9001, "127.0.0.2"),
        TcpAddress("q.example.org", 9002, "127.0.0.3"),
    }
    assert found.ttl_s == 7


@pytest.mark.parametrize(("ttl_s", "kept_s"), [(0, srv.LEAST_TTL_S), (1 << 20, MOST_TTL_S)])
async def test_a_time_to_live_keeps_its_bounds(dns: DnsServer, ttl_s: int, kept_s: float) -> None:
    dns.say(NAME, "p.example.org:1", ttl_s=ttl_s)
    assert (await SrvLookup(dns.address).look(NAME)).ttl_s == kept_s


async def test_an_answer_too_long_for_a_datagram_comes_over_tcp(dns: DnsServer) -> None:
    dns.say(NAME, *(f"p.example.org:{port}" for port in range(1, 100)))
    assert len((await SrvLookup(dns.address).look(NAME)).addresses) == 99
    assert dns.by_tcp == 1


async def test_a_target_is_dialled_where_dns_says_and_must_prove_its_name(dns: DnsServer) -> None:
    """No resolver of the system knows this name; the certificate is for it, and for no other."""
    door = Door(shows("elsewhere"))
    async with door.opened() as listener:
        dns.host("prefill.example", "127.0.0.1")
        dns.host("other.example", "127.0.0.1")
        dns.say(NAME, f"prefill.example:{listener.address.port}")
        (right,) = (await SrvLookup(dns.address).look(NAME)).addresses
        (await connect(right, security=shows("router"))).close()
        dns.say(NAME, f"other.example:{listener.address.port}")
        (wrong,) = (await SrvLookup(dns.address).look(NAME)).addresses
        with pytest.raises(PeerUnusable, match="certificate"):
            await connect(wrong, security=shows("router"))


@pytest.mark.parametrize(
    ("targets", "why"),
    [
        ((), "DNS does not say who is"),
        (("p.example.org:0",), "port 0 is for listening"),
        (("-.example.org:1",), "write tcp://HOST:PORT"),
        (("nobody.example.org:1",), "DNS does not say who is"),
        (tuple(f"p.example.org:{port}" for port in range(1, 1027)), "1026 SRV records; at most 1024"),
    ],
)
async def test_what_cannot_be_used_is_said(dns: DnsServer, targets: tuple[str, ...], why: str) -> None:
    dns.say(NAME, *targets)
    with pytest.raises(PeerUnusable, match=why):
        await SrvLookup(dns.address).look(NAME)


async def test_a_service_that_is_not_offered_names_nobody(dns: DnsServer) -> None:
    dns.records[NAME, "SRV"] = 0, ["0 0 0 ."]
    with pytest.raises(PeerUnusable, match="names nobody"):
        await SrvLookup(dns.address).look(NAME)


async def test_a_change_is_followed_and_a_failure_changes_nothing_and_is_said_once(
    dns: DnsServer, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    news: asyncio.Queue[list[int]] = asyncio.Queue()

    def refuse_9(found: tuple[TcpAddress, ...]) -> None:
        if any(each.port == 9 for each in found):
            raise ConfigurationError(["port 9 may not be"])

    dns.say(NAME, "p.example.org:2", "p.example.org:1")
    watching = asyncio.create_task(
        watch_srv(NAME, SrvLookup(dns.address), lambda found: news.put_nowait([each.port for each in found]), refuse_9)
    )
    async with asyncio.timeout(20):
        assert await news.get() == [1, 2]
        dns.fails = True
        for _ in range(4):
            await dns.was_asked(NAME)
        dns.fails = False
        dns.say(NAME, "p.example.org:9")
        for _ in range(4):
            await dns.was_asked(NAME)
        dns.say(NAME, "p.example.org:3")
        assert await news.get() == [3]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert news.empty()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.partition(": ")[0] for message in told] == ["the workers stay as they were"] * 2
    assert "port 9 may not be" in told[1]


class _All:
    def of_file(self, named: NamedWorkers) -> Places:
        return dict.fromkeys(named.everywhere, "")

    def check(self, addresses: Iterable[Address]) -> None:
        pass


async def test_who_stops_looking_stops_although_the_library_does_not(
    dns: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def deaf(*_args: Any, **_named: Any) -> None:
        asked.set()
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    lookup = SrvLookup(dns.address)
    monkeypatch.setattr(lookup._resolver, "resolve", deaf)
    looking = asyncio.create_task(lookup.look(NAME))
    await asked.wait()
    looking.cancel()
    await asyncio.wait({looking}, timeout=5)
    stopped = looking.cancelled()
    over.set()
    assert stopped


async def test_names_add_up(dns: DnsServer, quick: None) -> None:
    dns.say(NAME, "p.example.org:1")
    dns.say("_more._tcp.example.org", "q.example.org:2", "p.example.org:1")
    settings = RouterSettings(workers_srv=(NAME, "_more._tcp.example.org"), dns_server=dns.address)
    both = asyncio.Event()
    where = Whereabouts(lambda places: both.set() if len(places) == 2 else None)
    following = asyncio.create_task(follow(settings, where, _All()))
    async with asyncio.timeout(20):
        await both.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize(
    ("name", "server", "why"),
    [
        ("a b", None, "is no DNS name"),
        ("x" * 64 + ".org", None, "is no DNS name"),
        ("a." * 127, None, "is no DNS name"),
        (NAME, "127.0.0.1", "write IP:PORT"),
        (NAME, "dns.example:53", "write IP:PORT"),
        (NAME, "[::1]:8600", ""),
    ],
)
def test_what_cannot_be_asked_for_is_said_at_start(name: str, server: str | None, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) if why else contextlib.nullcontext():
        check_srv([name], server)


def test_what_a_source_said_holds_until_it_says_something_else() -> None:
    heard: list[Places] = []
    where = Whereabouts(heard.append)
    one, two = TcpAddress("a", 1), TcpAddress("b", 2)
    where.say("file", {one: "prefill-0"})
    where.say("dns", {one: "", two: ""})
    where.say("dns", {two: "", one: ""})
    where.say("dns", {one: ""})
    where.say("file", {})
    assert heard == [{one: "prefill-0"}, {one: "prefill-0", two: ""}, {one: "prefill-0"}, {one: ""}]
