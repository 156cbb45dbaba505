from __future__ import annotations

import asyncio
import os
import socket

import pytest

from quiesce.control import frames
from quiesce.control.single_frame import MAX_FDS, MAX_FIRST_FRAME_BYTES, close_fds, read_frame, write_frame
from quiesce.control.stream import FrameStream, first_frame
from quiesce.errors import BadFrame, PeerUnusable

from .connections import Note, decode_note, socket_pair


async def test_what_follows_the_first_frame_is_left_for_the_stream() -> None:
    sock, peer = socket_pair()
    peer.sendall(frames.encode(Note(1)) + frames.encode(Note(2)) + frames.encode(Note(3)))
    assert await first_frame(sock, decode_note) == Note(1)
    stream = FrameStream(sock, decode_note, "test")
    assert [await stream.receive(), await stream.receive()] == [Note(2), Note(3)]
    stream.close()
    peer.close()


async def test_a_first_frame_may_come_byte_by_byte() -> None:
    sock, peer = socket_pair()
    reading = asyncio.create_task(first_frame(sock, decode_note))
    for byte in frames.encode(Note(9)):
        peer.send(bytes([byte]))
        await asyncio.sleep(0)
    assert await reading == Note(9)
    sock.close()
    peer.close()


async def test_silence_ends_by_a_deadline() -> None:
    sock, peer = socket_pair()
    with pytest.raises(PeerUnusable, match="no first frame"):
        await first_frame(sock, decode_note, timeout_s=0.01)
    assert sock.fileno() == -1
    peer.close()


async def test_half_a_frame_ends_by_the_deadline_too() -> None:
    sock, peer = socket_pair()
    peer.sendall(frames.encode(Note(1))[:-1])
    with pytest.raises(PeerUnusable, match="no first frame"):
        await first_frame(sock, decode_note, timeout_s=0.01)
    peer.close()


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x09abc"])
async def test_a_peer_that_leaves_is_unusable(sent: bytes) -> None:
    sock, peer = socket_pair()
    peer.sendall(sent)
    peer.close()
    with pytest.raises(PeerUnusable, match="closed"):
        await first_frame(sock, decode_note)
    assert sock.fileno() == -1


async def test_a_reset_is_a_peer_that_left() -> None:
    sock, peer = socket_pair()
    sock.sendall(b"unread")
    peer.close()
    with pytest.raises(PeerUnusable, match="closed"):
        await first_frame(sock, decode_note)


@pytest.mark.parametrize(
    "sent", [(MAX_FIRST_FRAME_BYTES + 1).to_bytes(4, "big"), frames.prefixed(b"nonsense"), b"GET / HTTP/1.1\r\n\r\n"]
)
async def test_a_first_frame_that_is_nonsense_is_refused(sent: bytes) -> None:
    sock, peer = socket_pair()
    peer.sendall(sent)
    with pytest.raises(BadFrame):
        await first_frame(sock, decode_note)
    assert sock.fileno() == -1
    peer.close()


async def test_descriptors_with_a_first_frame_are_refused_and_closed() -> None:
    sock, peer = socket_pair()
    before = _open_fds()
    with open(os.devnull, "rb") as null:  # noqa: ASYNC230, PTH123 - a descriptor to send
        socket.send_fds(peer, [frames.encode(Note(1))], [null.fileno()])
    with pytest.raises(BadFrame, match="descriptors"):
        await first_frame(sock, decode_note)
    assert _open_fds() == before - 1
    peer.close()


async def test_cancelling_closes_the_socket() -> None:
    sock, peer = socket_pair()
    reading = asyncio.create_task(first_frame(sock, decode_note))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert sock.fileno() == -1
    peer.close()


async def test_descriptors_travel_with_their_own_frame() -> None:
    sock, peer = socket_pair()
    read_end, write_end = os.pipe()
    await write_frame(peer, frames.encode(Note(1)))
    await write_frame(peer, frames.encode(Note(2)), [write_end])
    await write_frame(peer, frames.encode(Note(3)))
    fds: list[int] = []
    counts = []
    for _ in range(3):
        await read_frame(sock, fds)
        counts.append(len(fds))
    assert counts == [0, 1, 1]
    assert not os.get_inheritable(fds[0])
    os.write(fds[0], b"x")
    assert os.read(read_end, 1) == b"x"
    close_fds(fds)
    assert fds == []
    for fd in (read_end, write_end):
        os.close(fd)
    sock.close()
    peer.close()


async def test_too_many_descriptors_are_refused_and_closed() -> None:
    sock, peer = socket_pair()
    read_end, write_end = os.pipe()
    before = _open_fds()
    socket.send_fds(peer, [frames.encode(Note(1))], [write_end] * (MAX_FDS + 1))
    with pytest.raises(BadFrame, match="descriptors"):
        await first_frame(sock, decode_note)
    assert _open_fds() == before - 1
    for fd in (read_end, write_end):
        os.close(fd)
    peer.close()


async def test_a_frame_larger_than_the_socket_buffer_is_written_in_parts() -> None:
    sock, peer = socket_pair()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    writing = asyncio.create_task(write_frame(peer, frames.encode(Note(1, "x" * 60_000))))
    assert await first_frame(sock, decode_note) == Note(1, "x" * 60_000)
    await writing
    sock.close()
    peer.close()


def _open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - descriptors, not files
