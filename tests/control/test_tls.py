"""Control over TCP: who proves nothing is told nothing, and frames travel as they do on one host."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from quiesce.control import tcp_listener
from quiesce.control.address import TcpAddress
from quiesce.control.connection import Connection, Identity, identity_of, require_grant
from quiesce.control.dialing import connect
from quiesce.control.frames import MAX_FRAME_BYTES
from quiesce.control.handshake import Opened, accept, offer
from quiesce.control.hello_codec import decode_first
from quiesce.control.security import LOCAL, Security, load_security, require_security
from quiesce.control.single_frame import first_frame, write_frame
from quiesce.control.stream import FrameStream
from quiesce.control.tcp_listener import open_listener
from quiesce.errors import ConfigurationError, HandshakeRefused, PeerUnusable
from quiesce.protocol.hello import Hello
from quiesce.trust.contexts import Contexts

from .connections import Note, decode_note
from .hellos import DECODE, PREFILL
from .trial import Door, files, joined, shows

INSECURE = Security(insecure=True)


@pytest.fixture(params=["tls", "plain"])
def pair(request: pytest.FixtureRequest) -> tuple[Security, Security]:
    return (shows("prefill-0"), shows("decode-0")) if request.param == "tls" else (INSECURE, INSECURE)


# ---------------------------------------------------------------- frames


async def test_frames_of_every_size_arrive_both_ways(pair: tuple[Security, Security]) -> None:
    async with joined(*pair) as (guest, owner):
        here, there = FrameStream(guest, decode_note, "here"), FrameStream(owner, decode_note, "there")
        notes = [Note(1, "x" * (MAX_FRAME_BYTES - 100)), *(Note(serial) for serial in range(2, 300))]
        for note in notes:
            here.send(note)
            there.send(note)
        assert here.unsent_bytes
        for stream in (here, there):
            assert [await stream.receive() for _ in notes] == notes
        here.close()
        assert await there.receive() is None
        there.close()


async def test_what_came_with_the_first_frame_is_not_lost(pair: tuple[Security, Security]) -> None:
    """TLS decrypts a record whole: what lies behind the first frame makes no descriptor readable."""
    async with joined(*pair) as (guest, owner):
        here = FrameStream(guest, decode_note, "here")
        for serial in range(3):
            here.send(Note(serial))
        await here.flush()
        assert await first_frame(owner, decode_note) == Note(0)
        there = FrameStream(owner, decode_note, "there")
        assert [await there.receive(), await there.receive()] == [Note(1), Note(2)]
        here.close()
        there.close()


async def test_a_stream_that_was_taken_over_is_not_closed_by_whoever_accepted_it() -> None:
    async with joined(shows("prefill-0"), shows("decode-0")) as (guest, owner):
        here, there = FrameStream(guest, decode_note, "here"), FrameStream(owner, decode_note, "there")
        owner.close()
        there.send(Note(7))
        assert await here.receive() == Note(7)
        here.close()
        there.close()


# ---------------------------------------------------------------- who is there


async def test_a_peer_is_its_certificate(pair: tuple[Security, Security]) -> None:
    async with joined(*pair) as (guest, owner):
        who = identity_of(owner)
        if pair[0].insecure:
            assert who == Identity("host 127.0.0.1")
        else:
            assert who.key.startswith("certificate ")
            assert who.grants == ("decode/decode-0",)
            assert identity_of(guest).grants == ("prefill/prefill-0",)


def test_a_certificate_bounds_what_its_owner_may_be() -> None:
    require_grant(Identity("certificate 1"), "prefill", "prefill-0")
    require_grant(Identity("certificate 1", ("prefill",)), "prefill", "anything")
    require_grant(Identity("certificate 1", ("router", "prefill/prefill-0")), "prefill", "prefill-0")
    for role, name in (("prefill", "prefill-1"), ("decode", "prefill-0"), ("router", "")):
        with pytest.raises(HandshakeRefused, match="its certificate is for prefill/prefill-0"):
            require_grant(Identity("certificate 1", ("prefill/prefill-0",)), role, name)


def plain_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def without_certificate() -> Security:
    return Security(Contexts(plain_context(), plain_context()))


def with_old_tls() -> Security:
    context = plain_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files("decode-0")["tls_cert"], files("decode-0")["tls_key"])
    return Security(Contexts(context, context))


@pytest.mark.parametrize(
    "stranger",
    [without_certificate, with_old_tls, lambda: INSECURE, lambda: shows("decode-0", "another CA")],
    ids=["no certificate", "TLS 1.2", "plain", "another CA"],
)
async def test_who_proves_nothing_comes_through_no_door(stranger: Callable[[], Security]) -> None:
    door = Door(shows("prefill-0"))
    async with door.opened() as listener:
        trouble: Exception | None = None
        try:
            connection = await connect(listener.address, security=stranger())
        except PeerUnusable as error:
            trouble = error
        else:  # with TLS 1.3 the dialler learns it by the first read
            stream = FrameStream(connection, decode_note, "door")
            stream.send(Note(1))
            assert await asyncio.wait_for(stream.receive(), 20) is None
            stream.close()
        assert door.came.empty(), trouble
        friend = await connect(listener.address, security=shows("decode-0"))
        (await asyncio.wait_for(door.came.get(), 20)).close()
        friend.close()


async def test_a_listener_that_cannot_prove_its_name_is_not_spoken_to() -> None:
    async with Door(shows("elsewhere")).opened() as listener:
        with pytest.raises(PeerUnusable, match=r"certificate is not valid for.* Look at the certificates"):
            await connect(listener.address, security=shows("decode-0"))


async def test_nobody_listening_is_reported_at_once() -> None:
    async with Door(INSECURE).opened() as listener:
        address = listener.address
    with pytest.raises(PeerUnusable, match=r"Connection refused\. Is that process running\?"):
        await connect(address, security=INSECURE)


async def test_whoever_is_silent_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers have places of their own; the one that has proved nothing for longest loses its."""
    monkeypatch.setattr(tcp_listener, "MOST_STRANGERS", 2)
    door = Door(shows("prefill-0"))
    loop = asyncio.get_running_loop()
    async with door.opened() as listener:
        silent = []
        for _ in range(3):
            sock = socket.socket()
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", listener.address.port))
            silent.append(sock)
        assert await asyncio.wait_for(loop.sock_recv(silent[0], 1), 20) == b""
        friend = await connect(listener.address, security=shows("decode-0"))
        (await asyncio.wait_for(door.came.get(), 20)).close()
        friend.close()
        for sock in silent:
            sock.close()


async def test_a_port_that_is_taken_is_a_configuration_error() -> None:
    async with Door(INSECURE).opened() as listener:
        with pytest.raises(ConfigurationError, match="cannot listen on tcp://"):
            await open_listener(listener.address, lambda sock: asyncio.sleep(0), INSECURE)
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        await open_listener(TcpAddress("no-such-host.invalid", 1), lambda sock: asyncio.sleep(0), INSECURE)


# ---------------------------------------------------------------- the workers' handshake


async def _meet(
    guest: Connection, owner: Connection, hello: Hello, fds: tuple[int, ...] = ()
) -> tuple[Opened | BaseException, Opened | BaseException]:
    async def prefill() -> Opened:
        first = await first_frame(owner, decode_first)
        assert isinstance(first, Hello)
        return await accept(owner, first, PREFILL)

    return await asyncio.gather(offer(guest, hello, lambda _: (b"pool", fds)), prefill(), return_exceptions=True)


async def test_workers_of_two_hosts_shake_hands_without_descriptors(pair: tuple[Security, Security]) -> None:
    async with joined(*pair) as (guest, owner):
        at_decode, at_prefill = await _meet(guest, owner, DECODE)
        assert isinstance(at_decode, Opened)
        assert isinstance(at_prefill, Opened)
        assert (at_decode.pidfd, at_decode.fds, at_prefill.pidfd, at_prefill.fds) == (-1, [], -1, [])
        assert at_prefill.descriptor == b"pool"


async def test_memory_is_not_shared_between_hosts(pair: tuple[Security, Security]) -> None:
    async with joined(*pair) as (guest, owner):
        for outcome in await _meet(guest, owner, DECODE, fds=(0,)):
            assert isinstance(outcome, HandshakeRefused)
            assert "transport shm shares memory, which ends at this host" in str(outcome)


async def test_a_worker_that_is_not_whom_its_certificate_names_is_refused() -> None:
    async with joined(shows("prefill-0"), shows("decode-1")) as (guest, owner):
        for outcome in await _meet(guest, owner, DECODE):
            assert isinstance(outcome, HandshakeRefused)
            assert "its certificate is for decode/decode-1, and it says that it is decode decode-0" in str(outcome)


# ---------------------------------------------------------------- files and settings


def test_nothing_told_is_one_host() -> None:
    assert load_security(None, None, None) == LOCAL
    assert not LOCAL.spans_hosts
    require_security([Path("/run/a.sock")], LOCAL)
    with pytest.raises(ConfigurationError, match=r"needs TLS: give --tls-cert.*quiesce certs.*--insecure"):
        require_security([Path("/run/a.sock"), TcpAddress("10.0.0.1", 1)], LOCAL)


def test_half_a_setting_is_refused(tmp_path: Path) -> None:
    told = files("decode-0")
    with pytest.raises(ConfigurationError, match="--tls-key is needed as well"):
        load_security(told["tls_cert"], None, told["tls_ca"])
    with pytest.raises(ConfigurationError, match="contradict"):
        load_security(told["tls_cert"], told["tls_key"], told["tls_ca"], insecure=True)
    with pytest.raises(ConfigurationError, match=r"--tls-ca .*No such file"):
        load_security(told["tls_cert"], told["tls_key"], str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigurationError, match=r"--tls-key .*router.key: the key is not that of the certificate"):
        load_security(told["tls_cert"], files("router")["tls_key"], told["tls_ca"])


# ---------------------------------------------------------------- noise at the door


async def _knock(noise: bytes, owner: Security, guest: Security | None) -> list[object]:
    """Send `noise` and hang up; the first frames that were believed. The door must still open for a friend."""
    believed: list[object] = []
    done = asyncio.Event()

    async def serve(connection: Connection) -> None:
        try:
            believed.append(await first_frame(connection, decode_first))
        finally:
            done.set()

    listener = await open_listener(TcpAddress("127.0.0.1", 0), serve, owner)
    assert isinstance(listener, tcp_listener.TcpListener)
    try:
        stranger = await connect(listener.address, security=guest or INSECURE)
        await write_frame(stranger, noise)
        stranger.close()
        if guest is None:  # whatever the TLS listener made of it, it goes on
            stranger = await connect(listener.address, security=shows("decode-0"))
            await write_frame(stranger, b"\0\0\0\0")
            stranger.close()
        await asyncio.wait_for(done.wait(), 20)
    finally:
        await listener.stop()
    return believed


NOISE = st.binary(max_size=400) | st.binary(max_size=64).map(lambda tail: b"\x16\x03\x01\x02\x00\x01" + tail)


@examples(max_examples=40)
@given(NOISE)
def test_bytes_of_whom_nobody_knows_change_nothing(noise: bytes) -> None:
    assert asyncio.run(_knock(noise, shows("prefill-0"), None)) == []


@examples(max_examples=60)
@given(st.binary(max_size=400) | st.binary(max_size=64).map(lambda tail: b"\0\0\0" + bytes([len(tail)]) + tail))
def test_noise_behind_a_good_certificate_is_no_first_frame(noise: bytes) -> None:
    assert asyncio.run(_knock(noise, shows("prefill-0"), shows("decode-0"))) == []
