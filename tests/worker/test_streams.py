"""What others say to a worker: nonsense ends their connection, never the worker; whoever does not fit is refused."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import msgspec
import numpy as np
import pytest

from quiesce.control.address import Address
from quiesce.control.connection import Identity
from quiesce.control.frames import encode
from quiesce.control.handshake import offer
from quiesce.control.stream import FrameStream, dial
from quiesce.errors import ConfigurationError, HandshakeRefused
from quiesce.ids import Attempt, PageTag, Peer, mint_incarnation
from quiesce.kv.runs import pack_runs
from quiesce.protocol import wire
from quiesce.protocol.dispatch import Attach, Scrape, Scraped
from quiesce.protocol.hello import Hello
from quiesce.protocol.messages import Abort, Bound, Envelope, Lease, OpenAttempts, Publish
from quiesce.transport.shm import SHM_CAPABILITIES
from quiesce.worker import decode_streams
from quiesce.worker.breaches import MOST_BREACHES
from quiesce.worker.greeting import hello_of
from quiesce.worker.peers import parse_peers
from quiesce.worker.prefill_streams import PrefillStreams

from .asking import BOTH
from .house import House, Member
from .rig import prompt_ids

# ---------------------------------------------------------------- routers


@pytest.mark.parametrize(
    "nonsense", [b"\xff" * 8, b"\x00\x00\x00\x01\xc1", encode(Attach("twice")), encode(Scrape(-1))]
)
@pytest.mark.parametrize("worker", BOTH)
async def test_a_router_that_talks_nonsense_is_disconnected(house: House, worker: str, nonsense: bytes) -> None:
    await house.prefill()
    await house.decode()
    sock = await dial(house.members[worker].path)
    loop = asyncio.get_running_loop()
    with sock:
        await loop.sock_sendall(sock, encode(Attach("odd")) + nonsense)
        async with asyncio.timeout(20):
            while await loop.sock_recv(sock, 1 << 16):
                pass
    await house.serves()


async def test_a_first_frame_of_nonsense_is_refused(house: House) -> None:
    await house.prefill()
    await house.decode()
    sock = await dial(house.members["decode-0"].path)
    with sock, contextlib.suppress(ConnectionResetError):
        await asyncio.get_running_loop().sock_sendall(sock, b"GET / HTTP/1.1\r\n\r\n")
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1), 20) == b""
    await house.serves()


async def test_the_last_words_reach_a_router_that_reads_slowly(house: House) -> None:
    """What is said before the end is not dropped with the connection."""
    member = await house.prefill()
    sock = await dial(member.path)
    loop = asyncio.get_running_loop()
    with sock:
        await loop.sock_sendall(sock, encode(Attach("slow")))
        first = await loop.sock_recv(sock, 1)
        link = next(link for link in member.worker.links._links if link.name == "slow")
        for serial in range(2000):
            link.send(Scraped(serial, "x" * 1000))
        assert link.stream.unsent_bytes > 0
        flushing = asyncio.create_task(member.worker.links.flush(20))
        seen = len(first)
        while link.stream.unsent_bytes:
            seen += len(await loop.sock_recv(sock, 1 << 20))
        await flushing
        member.worker.links.close()
        while piece := await loop.sock_recv(sock, 1 << 20):
            seen += len(piece)
    assert seen > 2_000_000


# ---------------------------------------------------------------- peers


def hello_as(member: Member[Any], **changes: Any) -> Hello:
    """HELLO of a decode worker like `member`, in a life of its own."""
    hello = hello_of(member.worker.parts, SHM_CAPABILITIES)
    return msgspec.structs.replace(hello, worker="decode-9", incarnation=mint_incarnation(), **changes)


async def join(house: House, decode: Member[Any], hello: Hello) -> FrameStream[Envelope]:
    """Pair with prefill-0 as if we were a decode worker, with the memory of `decode`."""
    descriptor, fds = decode.worker.intake.describe(Peer(0, mint_incarnation()))
    sock = await dial(house.members["prefill-0"].path)
    opened = await offer(sock, hello, lambda _: (descriptor, fds))
    opened.close()
    return FrameStream(sock, wire.decode, "prefill-0")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("version", 99, "protocol version"),
        ("model_fingerprint", "other", "model"),
        ("layout_fingerprint", "other", "layout"),
        ("payload_digest", "blake2b", "payload digest"),
        ("role", "prefill", "both workers are prefill"),
    ],
)
async def test_who_does_not_fit_is_refused_with_the_reason(house: House, field: str, value: Any, reason: str) -> None:
    await house.prefill()
    decode = await house.decode()
    with pytest.raises(HandshakeRefused, match=reason):
        await join(house, decode, hello_as(decode, **{field: value}))
    await house.serves()


async def test_memory_that_is_not_as_described_is_refused(house: House) -> None:
    """HELLO was accepted; its connection ends when the pool cannot be mapped."""
    await house.prefill()
    decode = await house.decode()
    sock = await dial(house.members["prefill-0"].path)
    _, fds = decode.worker.intake.describe(Peer(0, mint_incarnation()))
    opened = await offer(sock, hello_as(decode), lambda _: (b"no descriptor", fds))
    opened.close()
    stream = FrameStream(sock, wire.decode, "prefill-0")
    assert await asyncio.wait_for(stream.receive(), 20) is None
    stream.close()
    await house.serves()


async def test_a_decode_that_speaks_for_another_life_is_disconnected(house: House) -> None:
    """Else one decode worker could abort another's hand-offs."""
    prefill = await house.prefill()
    decode = await house.decode()
    hello = hello_as(decode)
    stream = await join(house, decode, hello)
    victim = Peer(0, decode.worker.parts.incarnation)
    to = Peer(0, prefill.worker.parts.incarnation)
    stream.send(Envelope(victim, to, Attempt(1), Abort(), OpenAttempts(Attempt(2))))
    assert await asyncio.wait_for(stream.receive(), 20) is None
    stream.close()
    await house.serves()


async def test_a_decode_life_that_breaks_the_protocol_again_and_again_is_refused(house: House) -> None:
    prefill = await house.prefill()
    decode = await house.decode()
    hello = hello_as(decode)
    to = Peer(0, prefill.worker.parts.incarnation)
    for _ in range(MOST_BREACHES):
        stream = await join(house, decode, hello)
        stream.send(Envelope(Peer(0, hello.incarnation), to, Attempt(1), Bound()))
        stream.send(Envelope(Peer(1, hello.incarnation), to, Attempt(0), Bound()))
        assert await asyncio.wait_for(stream.receive(), 20) is None
        stream.close()
    with pytest.raises(HandshakeRefused, match=r"broke the protocol 3 times .* attempt is out of bounds: '0'"):
        await join(house, decode, hello)
    assert await house.desk.metric("prefill-0", "quiesce_protocol_breaches_total") == MOST_BREACHES
    await house.serves()


async def test_trouble_that_goes_to_and_fro_is_logged_once(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A network that is down: a dial is not answered, the next one is told that there is no route."""
    ways, tried, enough = ("it does not answer", "No route to host"), itertools.count(), asyncio.Event()

    async def fails(streams: PrefillStreams, address: Address) -> tuple[bool, str]:
        if (number := next(tried)) == 6:
            enough.set()
            await asyncio.Event().wait()
        return False, ways[number % 2]

    monkeypatch.setattr(PrefillStreams, "_try", fails)
    monkeypatch.setattr("quiesce.worker.prefill_streams.backoff_s", lambda *_, **__: 0.0)
    await house.decode()
    await enough.wait()
    logged = [vars(each)["ids"]["reason"] for each in caplog.records if "cannot be used" in each.message]
    assert tuple(logged) == ways
    await house.desk.until(lambda: house.desk.troubles["decode-0"] == (("prefill-0", ways[1]),))


async def test_a_prefill_that_speaks_for_another_life_is_disconnected(house: House) -> None:
    """Its requests fail, and it is dialled again."""
    prefill = await house.prefill()
    decode = await house.decode()
    to = Peer(0, decode.worker.parts.incarnation)
    stream = next(iter(prefill.worker.streams._streams.values()))
    stream.send(Envelope(Peer(0, mint_incarnation()), to, Attempt(1), Bound()))
    await house.desk.until(lambda: house.desk.peers["decode-0"] == ())
    await house.desk.paired("decode-0", "prefill-0")
    await house.serves()


async def test_a_second_stream_of_the_same_life_replaces_the_first(house: House) -> None:
    """What lies unread in the older one is dropped first (rule 9)."""
    await house.prefill()
    decode = await house.decode()
    hello = hello_as(decode)
    first = await join(house, decode, hello)
    second = await join(house, decode, hello)
    assert await asyncio.wait_for(first.receive(), 20) is None
    first.close()
    second.close()
    await house.serves()


# ---------------------------------------------------------------- a lost pair


async def test_a_waiting_request_fails_when_its_prefill_is_gone(house: House) -> None:
    """It was admitted and waits for pages; at its turn there is nobody to publish to."""
    here, gone = await house.prefill("prefill-0"), await house.prefill("prefill-1")
    await house.decode("decode-0", ("prefill-0", "prefill-1"), pool_tokens=64, context_length=64)
    first = await house.held(here, prompt_ids(40, 1))
    second = house.desk.ask(prompt_ids(40, 2), "prefill-1", "decode-0", prefill="prefill-1", max_tokens=6)
    await second.accepted("decode-0")
    gone.path.unlink()
    for stream in list(gone.worker.streams._streams.values()):
        stream.close()
    await house.desk.until(lambda: house.desk.peers["decode-0"] == ("prefill-0",))
    here.writes.let_go()
    assert [await ask.end("decode-0") for ask in (first, second)] == ["length", "pair_unavailable"]


async def test_a_lost_tag_ends_one_answer_and_nothing_else(house: House) -> None:
    """A foreign write into a lease in use: its pages never circulate again, its seat does, others go on."""
    await house.prefill()
    decode = await house.decode(quarantine_budget=1.0)
    victim = house.desk.ask(prompt_ids(14, 1), *BOTH, max_tokens=200)
    await victim.said(2)
    decode.worker.parts.pool.tags[next(iter(decode.worker.handoffs.values())).lease.pages[0]] = 1
    assert await victim.end("decode-0") == "context_changed"
    beside = house.desk.ask(prompt_ids(14, 2), *BOTH, max_tokens=6)
    await beside.answers(6)
    view = await house.desk.shows("decode-0", lambda view: not view.running)
    assert view.pages["quarantined"] >= 4
    assert view.pages["quarantined"] + view.pages["free"] + view.pages["cached"] == decode.worker.parts.pool.pages
    assert not view.rooms
    assert decode.worker._landing.free_seats == decode.worker.parts.pool.slots


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "peers",
    [
        ("prefill-0",),
        ("prefill-0=tcp://host",),
        ("prefill-0=unix:/run/a.sock", "prefill-0=unix:/run/b.sock"),
        ("prefill-0=unix:/run/a.sock", "prefill-1=unix:/run/a.sock"),
    ],
)
def test_peers_that_cannot_be_are_refused(peers: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError):
        parse_peers(peers)


def test_peers_are_named_paths() -> None:
    named = parse_peers(("a=unix:/run/a.sock", "b=unix:/run/b.sock"))
    assert {name: str(path) for name, path in named.items()} == {"a": "/run/a.sock", "b": "/run/b.sock"}


async def test_a_prefix_of_no_whole_pages_is_refused(house: House) -> None:
    """A PUBLISH whose held prefix cannot be ends its request: nobody could say which pages are missing."""
    prefill = await house.prefill()
    decode = await house.decode()
    ask = house.desk.ask(prompt_ids(14), "prefill-0", max_tokens=6)
    await house.desk.until(lambda: ask.heard)
    request = prefill.worker.jobs[ask.request].request
    hello = hello_as(decode)
    stream = await join(house, decode, hello)
    me, there = Peer(0, hello.incarnation), Peer(0, prefill.worker.parts.incarnation)
    lease = Lease(PageTag(1), 4, pack_runs(np.arange(4, dtype=np.int32)), 0)
    publish = Publish(request.room, request.digest, lease, prompt_tokens=14, held_tokens=7)
    stream.send(Envelope(me, there, Attempt(1), publish, OpenAttempts(Attempt(2), (Attempt(1),))))
    assert await ask.end("prefill-0") == "held_tokens_refused"
    stream.close()
    await house.serves()


async def test_a_life_is_one_processs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that says HELLO with decode's incarnation is refused, and decode's own stream stays up."""
    await house.prefill()
    decode = await house.decode()
    mine = hello_of(decode.worker.parts, SHM_CAPABILITIES)
    monkeypatch.setattr(decode_streams, "identity_of", lambda sock: Identity("process 1"))
    with pytest.raises(HandshakeRefused, match="belongs to another process"):
        await join(house, decode, mine)
    await house.serves()
