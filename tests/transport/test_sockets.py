"""Data connections between hosts end when the other host is gone; on one host a peer may stand still."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
from array import array
from typing import cast

import numpy as np
import pytest

from quiesce.transport.tcp.sockets import GONE_AFTER_S, PlainStream, tune
from quiesce.transport.tcp.spans import Spans
from quiesce.transport.tcp.vectored import Vectored


class Peered:
    """A socket whose peer is at some address; it keeps what is set."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.options: dict[int, int] = {}

    def getpeername(self) -> tuple[str, int]:
        return self.address, 1

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if level == socket.IPPROTO_TCP:
            self.options[option] = value


@pytest.mark.parametrize(
    ("address", "far"),
    [("10.0.0.1", True), ("2001:db8::1", True), ("fe80::1%eth0", True), ("127.0.0.2", False), ("::1", False)],
)
def test_a_partition_ends_connections_between_hosts(address: str, far: bool) -> None:
    peered = Peered(address)
    tune(cast(socket.socket, peered))
    assert peered.options.get(socket.TCP_USER_TIMEOUT, 0) == (GONE_AFTER_S * 1000 if far else 0)
    assert (socket.TCP_KEEPIDLE in peered.options) is far


def test_a_connection_that_may_not_wait_is_waited_for_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a timeout the descriptor is one of those: asked again and again it would cost a core."""
    sends, takes = socket.socketpair()
    content = np.random.default_rng(1).bytes(4 << 20)
    memory = bytearray(content)
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with sends, takes:
        sends.settimeout(30)
        stream, waited = PlainStream(sends), threading.Event()

        def wait_for_room() -> None:
            waited.set()
            PlainStream.wait_for_room(stream)

        monkeypatch.setattr(stream, "wait_for_room", wait_for_room)
        spans = Spans(memoryview(memory), place, array("Q", [place, len(memory)]))
        sending = threading.Thread(target=stream.send_spans, args=(spans,))
        sending.start()
        assert takes.makefile("rb").read(len(content)) == content
        sending.join()
    assert waited.is_set()
    assert not spans.left_bytes


class Numbered:
    def fileno(self) -> int:
        return -1


def vectored(code: int) -> tuple[Vectored, Spans]:
    """A call that fails with `code`, on memory of which a part is through."""

    def fails(*_: int) -> int:
        ctypes.set_errno(code)
        return -1

    spans = Spans(memoryview(bytearray(9)), 0, array("Q", [0, 9]))
    spans.advance(4)
    return Vectored(fails, cast(socket.socket, Numbered())), spans


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EINTR])
def test_a_call_that_would_wait_or_was_interrupted_moved_nothing(code: int) -> None:
    call, spans = vectored(code)
    assert call(spans, 9, 0) is None
    assert spans.left_bytes == 5


@pytest.mark.parametrize("code", [errno.ECONNRESET, errno.EPIPE, errno.EFAULT, errno.ENOBUFS, errno.EBADF])
def test_any_other_failure_of_a_call_is_raised_and_moved_nothing(code: int) -> None:
    call, spans = vectored(code)
    with pytest.raises(OSError, match=os.strerror(code)) as raised:
        call(spans, 9, 0)
    assert raised.value.errno == code
    assert spans.left_bytes == 5
