from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from quiesce.control import frames, handshake
from quiesce.control.frames import decoder_of
from quiesce.control.handshake import Open, Opened, Ready, Refusal, accept, offer, refuse
from quiesce.control.hello_codec import decode_first
from quiesce.control.process_fd import own_pidfd, pid_of
from quiesce.control.single_frame import read_frame, write_frame
from quiesce.control.stream import FrameStream, first_frame
from quiesce.errors import BadFrame, HandshakeRefused, InvariantBroken, PeerUnusable
from quiesce.protocol.hello import Capabilities, Hello

from .connections import Note, decode_note, socket_pair
from .hellos import DECODE, PREFILL


@pytest.fixture(autouse=True)
def no_descriptor_leaks() -> Iterator[None]:
    """Whatever a test did, as many descriptors are open after it as before it (the loop's own aside)."""
    before = _open_memory_fds()
    yield
    assert _open_memory_fds() == before


async def _meet(
    hello: Hello = DECODE,
    mine: Hello = PREFILL,
    fds: tuple[int, ...] = (),
    descriptor: bytes = b"pool",
    lent: tuple[bytes, tuple[int, ...]] = (b"", ()),
) -> tuple[Opened | BaseException, Opened | BaseException, socket.socket, socket.socket]:
    left, right = socket_pair()

    async def prefill() -> Opened:
        first = await first_frame(right, decode_first)
        assert isinstance(first, Hello)
        return await accept(right, first, mine, lambda _: lent)

    at_decode, at_prefill = await asyncio.gather(
        offer(left, hello, lambda _: (descriptor, fds)), prefill(), return_exceptions=True
    )
    return at_decode, at_prefill, left, right


async def test_both_sides_learn_who_the_other_is() -> None:
    at_decode, at_prefill, left, right = await _meet()
    assert isinstance(at_decode, Opened)
    assert isinstance(at_prefill, Opened)
    assert (at_decode.hello.worker, at_prefill.hello.worker) == ("prefill-0", "decode-0")
    assert (at_decode.descriptor, at_prefill.descriptor) == (b"", b"pool")
    assert at_decode.fds == at_prefill.fds == []
    assert pid_of(at_decode.pidfd) == pid_of(at_prefill.pidfd) == os.getpid()
    for opened in (at_decode, at_prefill):
        opened.close()
        opened.close()
    left.close()
    right.close()


async def test_nonces_are_fresh_for_each_stream() -> None:
    nonces = set()
    for _ in range(3):
        at_decode, at_prefill, left, right = await _meet()
        assert isinstance(at_decode, Opened)
        assert isinstance(at_prefill, Opened)
        nonces |= {at_decode.hello.nonce, at_prefill.hello.nonce}
        assert at_decode.hello.echo == at_prefill.hello.nonce
        at_decode.close()
        at_prefill.close()
        left.close()
        right.close()
    assert len(nonces) == 6


async def test_memory_is_really_passed() -> None:
    pool = os.memfd_create("pool", os.MFD_CLOEXEC)
    other = os.memfd_create("other", os.MFD_CLOEXEC)
    os.write(pool, b"page content")
    at_decode, at_prefill, left, right = await _meet(fds=(pool, other))
    assert isinstance(at_decode, Opened)
    assert isinstance(at_prefill, Opened)
    seen, _ = at_prefill.fds
    assert os.pread(seen, 12, 0) == b"page content"
    os.pwrite(seen, b"PAGE", 0)
    assert os.pread(pool, 12, 0) == b"PAGE content"
    assert not os.get_inheritable(seen)
    at_decode.close()
    at_prefill.close()
    os.close(pool)
    os.close(other)
    left.close()
    right.close()


PULLING = {"transfer": "pull", "capabilities": Capabilities(drain_ack=True, pull=True)}
READER, LENDER = (msgspec.structs.replace(each, **PULLING) for each in (DECODE, PREFILL))


async def test_where_decode_reads_prefill_describes_its_pool() -> None:
    pool = os.memfd_create("pool", os.MFD_CLOEXEC)
    os.write(pool, b"page content")
    at_decode, at_prefill, left, right = await _meet(READER, LENDER, descriptor=b"", lent=(b"lent", (pool,)))
    assert isinstance(at_decode, Opened)
    assert isinstance(at_prefill, Opened)
    assert (at_decode.descriptor, at_prefill.descriptor) == (b"lent", b"")
    assert os.pread(at_decode.fds[0], 12, 0) == b"page content"
    assert at_prefill.fds == []
    for opened in (at_decode, at_prefill):
        opened.close()
    os.close(pool)
    left.close()
    right.close()


@pytest.mark.parametrize(
    ("hellos", "descriptor", "lent", "words"),
    [
        ((DECODE, PREFILL), b"pool", b"lent", "READY describes a pool although --transfer is push"),
        ((READER, LENDER), b"pool", b"lent", "OPEN describes a pool although --transfer is pull"),
        ((READER, LENDER), b"", bytes(32769), "descriptor_fits"),
    ],
)
async def test_a_pool_is_described_by_whose_pages_are_reached(
    hellos: tuple[Hello, Hello], descriptor: bytes, lent: bytes, words: str
) -> None:
    *ends, left, right = await _meet(*hellos, descriptor=descriptor, lent=(lent, ()))
    refused = [end for end in ends if isinstance(end, BaseException)]
    assert any(words in str(error) for error in refused)
    for end in ends:
        if isinstance(end, Opened):
            end.close()
    left.close()
    right.close()


async def test_what_describes_nothing_to_a_peer_refuses_it() -> None:
    left, right = socket_pair()

    def refuse_all(theirs: Hello) -> tuple[bytes, tuple[int, ...]]:
        raise HandshakeRefused("not this one")

    offering = asyncio.create_task(offer(left, READER, lambda _: (b"", ())))
    first = await first_frame(right, decode_first)
    assert isinstance(first, Hello)
    with pytest.raises(HandshakeRefused, match="not this one"):
        await accept(right, first, LENDER, refuse_all)
    with pytest.raises(HandshakeRefused, match="not this one"):
        await offering


async def test_frames_may_follow_at_once() -> None:
    at_decode, at_prefill, left, right = await _meet()
    assert isinstance(at_decode, Opened)
    assert isinstance(at_prefill, Opened)
    streams = [FrameStream(left, decode_note, "d"), FrameStream(right, decode_note, "p")]
    for mine, theirs in (streams, streams[::-1]):
        mine.send(Note(1))
        assert await theirs.receive() == Note(1)
    for stream in streams:
        stream.close()
    at_decode.close()
    at_prefill.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 1}, "protocol version differs"),
        ({"model_fingerprint": "other"}, "model differs"),
        ({"layout_fingerprint": "other"}, "KV layout differs"),
        ({"transport": "tcp"}, "transport differs"),
        ({"payload_digest": "blake2b"}, "payload digest setting differs"),
        ({"transfer": "pull"}, "transfer differs"),
        ({"role": "decode"}, "both workers are decode"),
        ({"capabilities": Capabilities()}, "neither drain_ack nor fence"),
    ],
)
async def test_what_prefill_does_not_accept_both_sides_hear(change: dict[str, object], reason: str) -> None:
    pool = os.memfd_create("pool")
    mine = msgspec.structs.replace(PREFILL, **change)
    at_decode, at_prefill, left, right = await _meet(mine=mine, fds=(pool,))
    for error in (at_decode, at_prefill):
        assert isinstance(error, HandshakeRefused)
        assert reason in str(error)
    assert left.fileno() == right.fileno() == -1
    os.close(pool)


async def test_what_decode_does_not_accept_both_sides_hear() -> None:
    """Prefill's check passes; decode's own transport is the one that could never return memory."""
    hello = msgspec.structs.replace(DECODE, capabilities=Capabilities())
    at_decode, at_prefill, left, right = await _meet(hello=hello)
    for error in (at_decode, at_prefill):
        assert isinstance(error, HandshakeRefused)
        assert "neither drain_ack nor fence" in str(error)
    assert left.fileno() == right.fileno() == -1


def _pidfd_of_parent() -> int:
    return os.pidfd_open(os.getppid())


def _no_pidfd() -> int:
    return os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize(
    ("make", "reason"), [(_pidfd_of_parent, "the socket belongs to process"), (_no_pidfd, "is no pidfd")]
)
async def test_a_wrong_pidfd_is_refused_by_decode(
    make: Callable[[], int], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "own_pidfd", make)
    at_decode, at_prefill, _left, _right = await _meet()
    for error in (at_decode, at_prefill):
        assert isinstance(error, HandshakeRefused)
        assert reason in str(error)


@pytest.mark.parametrize(
    ("make", "reason"), [(_pidfd_of_parent, "the socket belongs to process"), (_no_pidfd, "is no pidfd")]
)
async def test_a_wrong_pidfd_is_refused_by_prefill(make: Callable[[], int], reason: str) -> None:
    pool = os.memfd_create("pool")
    error, refusal = await _prefill_hears(lambda echo: (Open(echo, b"pool"), [make(), pool]))
    assert isinstance(error, HandshakeRefused)
    assert reason in str(error)
    assert reason in refusal
    os.close(pool)


async def test_a_dead_peers_pidfd_is_refused() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])  # noqa: ASYNC220 - a process to be dead
    pidfd = os.pidfd_open(child.pid)
    child.wait()
    assert pid_of(pidfd) == -1
    error, _ = await _prefill_hears(lambda echo: (Open(echo, b""), [pidfd]))
    assert isinstance(error, HandshakeRefused)


async def test_open_without_a_pidfd_is_refused() -> None:
    error, refusal = await _prefill_hears(lambda echo: (Open(echo, b""), []))
    assert isinstance(error, HandshakeRefused)
    assert "file descriptors came" in refusal


async def test_open_must_echo_the_nonce() -> None:
    error, refusal = await _prefill_hears(lambda echo: (Open(secrets.token_hex(16), b""), [own_pidfd()]))
    assert isinstance(error, HandshakeRefused)
    assert "does not echo" in refusal


@pytest.mark.parametrize(
    "frame",
    [Ready(b"x"), Ready(), DECODE, Open("short", b""), Open("0" * 32, bytes(40_000)), Refusal("x" * 5000), Note(1)],
    ids=["described", "ready", "hello", "echo", "descriptor", "refusal", "note"],
)
async def test_nonsense_for_open_is_a_bad_frame(frame: msgspec.Struct) -> None:
    error, refusal = await _prefill_hears(lambda echo: (frame, [own_pidfd()]))
    assert isinstance(error, BadFrame)
    assert refusal


async def test_a_hello_that_echoes_nothing_sent_is_refused() -> None:
    left, right = socket_pair()
    with pytest.raises(HandshakeRefused, match="never sent"):
        await accept(right, msgspec.structs.replace(DECODE, echo="1" * 32), PREFILL)
    assert "never sent" in await _refusal(left)
    left.close()


async def test_decode_refuses_a_hello_that_does_not_echo_its_nonce() -> None:
    left, right = socket_pair()
    offering = asyncio.create_task(offer(left, DECODE, lambda _: (b"", ())))
    await first_frame(right, decode_first)
    await write_frame(right, frames.encode(msgspec.structs.replace(PREFILL, echo="1" * 32)))
    with pytest.raises(HandshakeRefused, match="does not echo"):
        await offering
    assert "does not echo" in await _refusal(right)
    right.close()


@pytest.mark.parametrize("count", [0, 2])
async def test_decode_takes_exactly_one_descriptor_from_prefill(count: int) -> None:
    left, right = socket_pair()
    offering = asyncio.create_task(offer(left, DECODE, lambda _: (b"", ())))
    first = await first_frame(right, decode_first)
    assert isinstance(first, Hello)
    pidfds = [own_pidfd() for _ in range(count)]
    await write_frame(right, frames.encode(msgspec.structs.replace(PREFILL, echo=first.nonce)), pidfds)
    with pytest.raises(HandshakeRefused, match=f"{count} file descriptors came"):
        await offering
    for fd in pidfds:
        os.close(fd)
    right.close()


async def test_a_worker_that_cannot_accept_now_says_why() -> None:
    left, right = socket_pair()
    offering = asyncio.create_task(offer(left, DECODE, lambda _: (b"", ())))
    await first_frame(right, decode_first)
    refuse(right, "draining")
    with pytest.raises(HandshakeRefused, match="draining"):
        await offering


async def test_a_peer_that_leaves_is_unusable_but_not_refused() -> None:
    left, right = socket_pair()
    right.close()
    with pytest.raises(PeerUnusable, match="closed the connection") as raised:
        await offer(left, DECODE, lambda _: (b"", ()))
    assert not isinstance(raised.value, HandshakeRefused)
    left, right = socket_pair()
    left.close()
    with pytest.raises(PeerUnusable, match="closed the connection"):
        await accept(right, DECODE, PREFILL)


async def test_a_socket_that_cannot_be_used_is_a_peer_that_cannot() -> None:
    left, right = socket_pair()
    left.close()
    with pytest.raises(PeerUnusable, match="handshake failed"):
        await offer(left, DECODE, lambda _: (b"", ()))
    right.close()


async def test_a_silent_peer_ends_by_the_deadline() -> None:
    left, right = socket_pair()
    with pytest.raises(PeerUnusable, match="did not end"):
        await offer(left, DECODE, lambda _: (b"", ()), timeout_s=0.01)
    assert left.fileno() == -1
    right.close()
    left, right = socket_pair()
    with pytest.raises(PeerUnusable, match="did not end"):
        await accept(right, DECODE, PREFILL, timeout_s=0.01)
    assert right.fileno() == -1
    left.close()


async def test_cancelling_closes_everything() -> None:
    left, right = socket_pair()
    offering = asyncio.create_task(offer(left, DECODE, lambda _: (b"", ())))
    first = await first_frame(right, decode_first)
    assert isinstance(first, Hello)
    pidfd = own_pidfd()
    await write_frame(right, frames.encode(msgspec.structs.replace(PREFILL, echo=first.nonce)), [pidfd])
    os.close(pidfd)
    fds: list[int] = []
    await read_frame(right, fds)  # OPEN: decode has our pidfd now and waits for READY
    os.close(fds.pop())
    offering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await offering
    assert left.fileno() == -1
    right.close()


async def test_a_descriptor_that_does_not_fit_is_our_bug() -> None:
    left, right = socket_pair()
    offering = asyncio.create_task(offer(left, DECODE, lambda _: (bytes(40_000), ())))
    first = await first_frame(right, decode_first)
    assert isinstance(first, Hello)
    pidfd = own_pidfd()
    await write_frame(right, frames.encode(msgspec.structs.replace(PREFILL, echo=first.nonce)), [pidfd])
    with pytest.raises(InvariantBroken):
        await offering
    os.close(pidfd)
    right.close()


async def _prefill_hears(
    opening: Callable[[str], tuple[msgspec.Struct, list[int]]],
) -> tuple[BaseException | Opened, str]:
    """Play decode up to OPEN, send `opening(echo)`; prefill's result and the reason that decode was told.

    Descriptors of `opening` are closed, memfds aside.
    """
    left, right = socket_pair()
    accepting = asyncio.gather(accept(right, DECODE, PREFILL), return_exceptions=True)
    fds: list[int] = []
    theirs = decoder_of(Hello)(await read_frame(left, fds))
    frame, sent = opening(theirs.nonce)
    await write_frame(left, frames.encode(frame), sent)
    (result,) = await accepting
    reason = await _refusal(left)
    for fd in (*fds, *sent[:1]):
        os.close(fd)
    left.close()
    assert right.fileno() == -1
    return result, reason


async def _refusal(sock: socket.socket) -> str:
    refusal: Refusal = decoder_of(Refusal)(await read_frame(sock, []))
    return refusal.reason


def _open_memory_fds() -> int:
    """Open pidfds, memfds and sockets."""
    kinds = ("anon_inode:[pidfd]", "/memfd:", "socket:", "/dev/null")
    links = [_link(fd) for fd in os.listdir("/proc/self/fd")]  # noqa: PTH208 - descriptors, not files
    return sum(link.startswith(kinds) for link in links)


def _link(fd: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return ""
