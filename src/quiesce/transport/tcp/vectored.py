"""`recvmsg` and `sendmsg` of what a vector tells of: Python's own want a view for each page, and for each call."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable

from quiesce.transport.tcp.spans import Spans

Call = Callable[[int, int, int], int]
"""Of a descriptor, the address of a message and flags: how many bytes went, or -1 and an errno."""


class _Message(ctypes.Structure):
    """`struct msghdr` of Linux with 64 bits: no address, a vector of places, nothing beside it.

    glibc's on x86-64 and aarch64. musl has an int and padding where lengths are here: the same in little-endian.
    """

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_bytes", ctypes.c_uint32),
        ("vector", ctypes.c_void_p),
        ("vector_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Vectored:
    """One of both calls on one socket, by one thread. It lets go of the GIL."""

    def __init__(self, call: Call, sock: socket.socket) -> None:
        """`call` is `RECVMSG` or `SENDMSG`."""
        self._call = call
        self._sock = sock
        self._message = _Message()
        self._message_at = ctypes.addressof(self._message)

    def __call__(self, spans: Spans, most_bytes: int, flags: int) -> int | None:
        """One call, and `spans` advanced by it. None: it would have waited, or a signal came. Raises OSError."""
        message = self._message
        message.vector, message.vector_length = spans.vector(most_bytes)
        n = self._call(self._sock.fileno(), self._message_at, flags)
        if n >= 0:
            spans.advance(n)
            return n
        if (code := ctypes.get_errno()) in (errno.EAGAIN, errno.EINTR):
            return None
        raise OSError(code, os.strerror(code))


def _declared(name: str) -> Call:
    call = _LIBC[name]
    call.argtypes, call.restype = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int], ctypes.c_ssize_t
    return call


_LIBC = ctypes.CDLL(None, use_errno=True)
RECVMSG, SENDMSG = _declared("recvmsg"), _declared("sendmsg")
