"""Scattered memory over one connection, in plain and over TLS: in order, once, and never waiting where that is said."""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from array import array
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from quiesce.protocol.sender_io import Outcome
from quiesce.transport.tcp.sockets import PlainStream, Stream
from quiesce.transport.tcp.spans import Spans
from quiesce.transport.tcp.tls import TlsStream

from .placements import LONG_S
from .tcp import Wired, shown_by

N_BYTES = 5 << 20
"""More than a connection holds under way."""


@pytest.fixture(params=["plain", "tls"])
def streams(request: pytest.FixtureRequest) -> Iterator[tuple[Stream, Stream]]:
    """One that writes and one that reads."""
    here, there = socket.socketpair()
    with here, there:
        if request.param == "plain":
            yield PlainStream(here), PlainStream(there)
            return
        writes = TlsStream(here, shown_by("prefill-0"), "decode")
        reads = TlsStream(there, shown_by("decode-0"), "prefill", "127.0.0.1")
        shaking = threading.Thread(target=reads.shake_hands, args=(time.monotonic() + LONG_S,))
        shaking.start()
        writes.shake_hands(time.monotonic() + LONG_S)
        shaking.join()
        for each in (writes, reads):
            each.settimeout(None)
        yield writes, reads


def scattered(memory: bytearray, seed: int) -> tuple[Spans, list[tuple[int, int]]]:
    """Spans of `memory` in no order, with gaps, and where each lies: some are larger than any one call."""
    chance = np.random.default_rng(seed)
    cuts = np.unique(chance.integers(0, len(memory) // 2, 64))
    places = [(int(at), int(to - at) - 1) for at, to in pairwise(cuts) if to - at > 1]
    places.append((len(memory) // 2, len(memory) // 2))
    chance.shuffle(places)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    entries = array("Q", [n for at, n_bytes in places for n in (base + at, n_bytes)])
    return Spans(memoryview(memory), base, entries), [(int(at), int(n_bytes)) for at, n_bytes in places]


def content(memory: bytearray, places: list[tuple[int, int]]) -> bytes:
    return b"".join(memory[at : at + n_bytes] for at, n_bytes in places)


def within(seconds: float, call: object, *arguments: object) -> list[object]:
    """What `call` returned, in a list; an empty one if it waits."""
    returned: list[object] = []
    calling = threading.Thread(target=lambda: returned.append(call(*arguments)), daemon=True)  # type: ignore[operator]
    calling.start()
    calling.join(seconds)
    return returned


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_scattered_here_is_scattered_there(streams: tuple[Stream, Stream], whole: bool) -> None:
    writes, reads = streams
    source = bytearray(np.random.default_rng(1).bytes(N_BYTES))
    target = bytearray(N_BYTES)
    sent, from_places = scattered(source, 2)
    placed, to_places = scattered(target, 2)

    def give() -> None:
        while sent.left_bytes:
            if writes.give(sent) is None:
                writes.wait_for_room()
        writes.send([b"behind"])  # and with it what give has encrypted and the kernel had no room for

    def send() -> None:
        writes.send_spans(sent)
        writes.send([b"behind"])

    writing = threading.Thread(target=send if whole else give)
    writing.start()
    while placed.left_bytes:
        n_bytes = reads.take(placed)
        assert n_bytes != 0
        if n_bytes is None:
            reads.wait()
    behind = memoryview(bytearray(6))
    assert reads.recv_into(behind) == 6
    writing.join()
    assert bytes(behind) == b"behind"
    assert not sent.left_bytes
    assert content(target, to_places) == content(source, from_places)
    gaps = bytearray(target)
    for at, n_bytes in to_places:
        gaps[at : at + n_bytes] = bytes(n_bytes)
    assert not any(gaps)


def test_who_takes_what_has_not_come_does_not_wait(streams: tuple[Stream, Stream]) -> None:
    writes, reads = streams
    placed, _ = scattered(bytearray(N_BYTES), 2)
    was_bytes = placed.left_bytes
    assert within(LONG_S / 6, reads.take, placed) == [None]
    assert placed.left_bytes == was_bytes
    writes.hang_up()
    assert reads.take(placed) == 0


def test_who_gives_to_somebody_that_takes_nothing_does_not_wait(streams: tuple[Stream, Stream]) -> None:
    """It holds the lock that a revocation waits for."""
    writes, reads = streams
    sent, _ = scattered(bytearray(N_BYTES), 2)
    while (given := within(LONG_S / 6, writes.give, sent)) != [None]:
        assert given not in ([], [0])
        assert sent.left_bytes
    assert sent.left_bytes
    reads.hang_up()


def test_what_no_byte_of_left_stays_whole(streams: tuple[Stream, Stream]) -> None:
    writes, _ = streams
    sent, _ = scattered(bytearray(N_BYTES), 2)
    writes.hang_up()
    with pytest.raises(OSError):  # noqa: PT011  # plain and TLS have words of their own
        writes.send_spans(sent)
    assert sent.is_whole


def test_what_a_byte_of_left_is_whole_no_more(streams: tuple[Stream, Stream]) -> None:
    writes, reads = streams
    memory = bytearray(N_BYTES)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    sent = Spans(memoryview(memory), base, array("Q", [base, N_BYTES]))
    failed: list[OSError] = []

    def send() -> None:
        try:
            writes.send_spans(sent)
        except OSError as error:
            failed.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    assert isinstance(reads, PlainStream)
    assert reads._sock.recv(1)  # that makes no room for what is left of the first call
    writes.hang_up()
    sending.join()
    assert failed
    assert not sent.is_whole


@pytest.mark.parametrize("sent_bytes", [0, 1])
def test_a_write_is_quiesced_only_when_no_byte_of_a_page_was_taken(sent_bytes: int) -> None:
    """Told by what the stream says of its last call, not by whoever reads replies."""
    with Wired() as made:
        made.arm([1])
        made.launch(1, [1], [1])
        made.wait()
        (line,) = made.sender._lines

        def send_spans(spans: Spans, /) -> None:
            spans.advance(sent_bytes)
            raise BrokenPipeError

        line._stream.send_spans = send_spans  # type: ignore[method-assign]
        made.launch(2, [1], [1])
        (end,) = made.wait()
        assert end.outcome is (Outcome.FAILED_IN_FLIGHT if sent_bytes else Outcome.FAILED_QUIESCED)
