"""One frame at a time on a bare connection, together with file descriptors, and never a byte too many.

A new connection is read this way until it is clear what it is; a `FrameStream` takes over after that and finds every
byte that was not meant for us still in the kernel.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from quiesce.control.connection import Connection, is_local
from quiesce.control.frames import HEADER_BYTES, payload_bytes
from quiesce.control.readiness import until_readable, until_writable
from quiesce.errors import BadFrame, PeerUnusable, invariant

T = TypeVar("T")

MAX_FIRST_FRAME_BYTES = 64 << 10
"""First frames and handshakes are small; somebody we know nothing about yet gets no more memory than this."""

MAX_FDS = 64
FIRST_FRAME_DEADLINE_S = 10.0

_FD_BYTES = array.array("i").itemsize


async def first_frame(sock: Connection, decode: Callable[[bytes], T], timeout_s: float = FIRST_FRAME_DEADLINE_S) -> T:
    """Read exactly one frame (at most 64 KiB, no descriptors).

    Raises BadFrame on nonsense and PeerUnusable when the peer leaves or says nothing for `timeout_s`; the socket is
    closed then.
    """
    fds: list[int] = []
    try:
        async with asyncio.timeout(timeout_s):
            payload = await read_frame(sock, fds)
        if fds:
            raise BadFrame("the first frame of a connection brought file descriptors")
        return decode(payload)
    except BaseException as error:
        sock.close()
        if isinstance(error, TimeoutError):
            raise PeerUnusable(f"a connection sent no first frame for {timeout_s:g} s", took_effect=False) from None
        raise
    finally:
        close_fds(fds)


async def read_frame(sock: Connection, fds: list[int]) -> bytes:
    """One frame's payload; descriptors that came with it are appended to `fds` at once, whatever happens next.

    Raises BadFrame (too large, too many descriptors) and PeerUnusable (the peer left).
    """
    header = await _read_exactly(sock, HEADER_BYTES, fds)
    return await _read_exactly(sock, payload_bytes(header, MAX_FIRST_FRAME_BYTES), fds)


async def write_frame(sock: Connection, frame: bytes, fds: Sequence[int] = ()) -> None:
    """Write one encoded frame; `fds` travel with its first byte. A peer that has left shows when we read.

    On a connection to another host there must be no `fds`.
    """
    invariant(not fds or is_local(sock), "descriptors_stay_here")
    sock.setblocking(False)
    rest = memoryview(frame)
    while rest:
        try:
            sent = socket.send_fds(sock, [rest], list(fds)) if fds and is_local(sock) else sock.send(rest)
        except (BlockingIOError, InterruptedError):
            await until_writable(sock)
        except ConnectionError:
            return
        else:
            rest, fds = rest[sent:], ()


def close_fds(fds: list[int]) -> None:
    """Close and forget received descriptors."""
    while fds:
        os.close(fds.pop())


async def _read_exactly(sock: Connection, n_bytes: int, fds: list[int]) -> bytes:
    sock.setblocking(False)
    data = bytearray()
    while len(data) < n_bytes:
        try:
            part = _receive(sock, n_bytes - len(data), fds)
        except (BlockingIOError, InterruptedError):
            await until_readable(sock)
            continue
        except ConnectionError:
            part = b""
        if not part:
            raise PeerUnusable("the peer closed the connection", took_effect=False)
        data += part
    return bytes(data)


def _receive(sock: Connection, n_bytes: int, fds: list[int]) -> bytes:
    if not is_local(sock):  # descriptors never leave a host
        return sock.recv(n_bytes)
    space = socket.CMSG_SPACE(MAX_FDS * _FD_BYTES)
    data, ancillary, flags, _ = sock.recvmsg(n_bytes, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(content) - len(content) % _FD_BYTES
            fds.extend(array.array("i", content[:whole]))
    if flags & socket.MSG_CTRUNC or len(fds) > MAX_FDS:
        raise BadFrame(f"a frame brought more than {MAX_FDS} file descriptors")
    return data
