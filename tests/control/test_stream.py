from __future__ import annotations

import asyncio
import os
import random
import socket

import pytest

from quiesce.control import frames
from quiesce.control import stream as stream_module
from quiesce.control.frames import MAX_FRAME_BYTES
from quiesce.control.stream import UNSENT_LIMIT_BYTES, FrameStream, first_frame
from quiesce.errors import BadFrame, InvariantBroken, PeerUnusable

from .connections import Note, decode_note, socket_pair, stream_and_peer, stream_pair


async def test_frames_arrive_in_order_both_ways() -> None:
    left, right = stream_pair()
    for serial in range(200):
        left.send(Note(serial))
        right.send(Note(-serial))
    assert [await right.receive() for _ in range(200)] == [Note(serial) for serial in range(200)]
    assert [await left.receive() for _ in range(200)] == [Note(-serial) for serial in range(200)]
    left.close()
    right.close()


async def test_the_peer_pid_is_the_kernels() -> None:
    left, right = stream_pair()
    assert left.peer_pid == os.getpid()
    left.close()
    right.close()


async def test_a_waiting_receiver_is_woken() -> None:
    left, right = stream_pair()
    waiting = asyncio.create_task(right.receive())
    await asyncio.sleep(0)
    left.send(Note(1))
    assert await waiting == Note(1)
    left.close()
    right.close()


async def test_frames_larger_than_any_buffer_arrive() -> None:
    left, right = stream_pair()
    text = "x" * (MAX_FRAME_BYTES - 100)
    left.send(Note(1, text))
    left.send(Note(2))
    assert left.unsent_bytes
    assert await right.receive() == Note(1, text)
    assert await right.receive() == Note(2)
    await left.flush()
    assert not left.unsent_bytes
    left.close()
    right.close()


async def test_the_end_of_the_stream_is_none_again_and_again() -> None:
    stream, peer = stream_and_peer()
    peer.sendall(frames.encode(Note(1)))
    peer.close()
    assert await stream.receive() == Note(1)
    assert await stream.receive() is None
    assert await stream.receive() is None
    assert not stream.closed
    stream.close()


async def test_the_end_inside_a_frame_is_the_end() -> None:
    for cut in (2, 4, 9):
        stream, peer = stream_and_peer()
        peer.sendall(frames.encode(Note(1, "long enough"))[:cut])
        peer.close()
        assert await stream.receive() is None
        stream.close()


async def test_a_reset_is_the_end() -> None:
    stream, peer = stream_and_peer()
    stream.send(Note(1))
    peer.close()  # with our frame unread: the kernel resets the connection
    assert await stream.receive() is None
    stream.close()


async def test_sending_to_a_peer_that_left_does_nothing_and_keeps_what_it_said() -> None:
    stream, peer = stream_and_peer()
    peer.sendall(frames.encode(Note(1)))
    peer.close()
    stream.send(Note(2))
    stream.send(Note(3))
    assert stream.unsent_bytes == 0
    assert await stream.receive() == Note(1)
    assert await stream.receive() is None
    stream.close()
    stream.send(Note(4))


async def test_a_peer_that_stopped_reading_for_good_ends_the_stream() -> None:
    stream, peer = stream_and_peer()
    peer.shutdown(socket.SHUT_RD)
    stream.send(Note(1))
    assert await stream.receive() is None
    stream.close()
    peer.close()


async def test_half_closed_still_carries_the_other_way() -> None:
    stream, peer = stream_and_peer()
    peer.shutdown(socket.SHUT_WR)
    assert await stream.receive() is None
    stream.send(Note(5))
    assert await first_frame(peer, decode_note) == Note(5)
    stream.close()
    peer.close()


async def test_an_oversized_frame_closes_the_stream() -> None:
    stream, peer = stream_and_peer()
    peer.sendall((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(BadFrame):
        await stream.receive()
    assert stream.closed
    assert await stream.receive() is None
    peer.close()


async def test_a_malformed_frame_closes_the_stream_after_the_good_ones() -> None:
    stream, peer = stream_and_peer()
    peer.sendall(frames.encode(Note(1)) + frames.prefixed(b"nonsense") + frames.encode(Note(2)))
    assert await stream.receive() == Note(1)
    with pytest.raises(BadFrame):
        await stream.receive()
    assert await stream.receive() is None
    assert peer.recv(1) == b""
    peer.close()


async def test_random_bytes_never_do_anything_but_end_the_stream() -> None:
    draw = random.Random(7)
    for _ in range(50):
        stream, peer = stream_and_peer()
        peer.sendall(draw.randbytes(draw.randrange(1, 300)))
        peer.close()
        try:
            while await stream.receive() is not None:
                pass
        except BadFrame:
            assert stream.closed
        stream.close()


async def test_a_slow_reader_is_cut_off_at_the_bound() -> None:
    """`send` never blocks; what waits is bounded, and over it the stream is closed and the sender told."""
    stream, peer = stream_and_peer()
    big = Note(1, "x" * (8 << 20))
    for _ in range(UNSENT_LIMIT_BYTES // (8 << 20)):
        stream.send(big)
    assert 0 < stream.unsent_bytes <= UNSENT_LIMIT_BYTES
    with pytest.raises(PeerUnusable, match="does not read"):
        stream.send(big)
    assert stream.closed
    assert stream.unsent_bytes == 0
    await stream.flush()
    peer.close()


async def test_a_slow_consumer_is_felt_by_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """We stop reading above a bound: the rest stays in the kernel and with the sender, and arrives later."""
    monkeypatch.setattr(stream_module, "_PAUSE_BYTES", 100_000)
    left, right = stream_pair()
    for serial in range(300):
        left.send(Note(serial, "x" * 10_000))
    async with asyncio.timeout(10):
        while right._reading:  # noqa: ASYNC110 - there is no event to wait for, on purpose
            await asyncio.sleep(0)
        held = right._inbox.buffered_bytes
        assert 100_000 <= held < 300_000
        assert left.unsent_bytes > 0
        serials = [note.serial for _ in range(300) if (note := await right.receive())]
    assert serials == list(range(300))
    left.close()
    right.close()


async def test_many_buffered_frames_do_not_starve_the_loop() -> None:
    left, right = stream_pair()
    for serial in range(2000):
        left.send(Note(serial))
    assert await right.receive() == Note(0)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    for _ in range(1999):
        await right.receive()
    assert turns >= 20
    counting.cancel()
    left.close()
    right.close()


async def test_cancelling_receive_loses_nothing() -> None:
    left, right = stream_pair()
    waiting = asyncio.create_task(right.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    left.send(Note(1))
    assert await right.receive() == Note(1)
    left.close()
    right.close()


async def test_only_one_may_receive() -> None:
    left, right = stream_pair()
    waiting = asyncio.create_task(right.receive())
    await asyncio.sleep(0)
    with pytest.raises(InvariantBroken, match="one_receiver"):
        await right.receive()
    right.close()
    assert await waiting is None
    left.close()


async def test_close_is_idempotent_wakes_the_receiver_and_drops_the_unread() -> None:
    left, right = stream_pair()
    waiting = asyncio.create_task(right.receive())
    closing = asyncio.create_task(right.wait_closed())
    await asyncio.sleep(0)
    right.close()
    right.close()
    assert await waiting is None
    await closing
    left.send(Note(1))
    assert await right.receive() is None
    assert await left.receive() is None
    left.close()


async def test_the_stream_takes_the_descriptor_out_of_the_socket() -> None:
    """Whoever accepted the connection cannot close it under the stream (and let the loop watch a reused number)."""
    left, right = socket_pair()
    stream = FrameStream(left, decode_note, "test")
    assert left.fileno() == -1
    left.close()
    right.sendall(frames.encode(Note(1)))
    assert await stream.receive() == Note(1)
    stream.close()
    right.close()


async def test_an_encoder_of_another_format_composes() -> None:
    left, right = socket_pair()
    sender = FrameStream(left, decode_note, "left", encode=lambda note: b"!" + frames.pack(note))
    receiver = FrameStream(right, lambda payload: decode_note(payload.removeprefix(b"!")), "right")
    sender.send(Note(3))
    assert await receiver.receive() == Note(3)
    sender.close()
    receiver.close()
