"""Who is at the other end of a Unix socket, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct
from typing import NamedTuple

from quiesce.errors import PeerUnusable

_UCRED = struct.Struct("3i")


class Credentials(NamedTuple):
    """The peer's process, user and group when it connected (or began to listen)."""

    pid: int
    uid: int
    gid: int


def peer_credentials(sock: socket.socket) -> Credentials:
    """SO_PEERCRED of a connected Unix socket."""
    return Credentials(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def require_same_user(sock: socket.socket) -> Credentials:
    """The peer's credentials. Raises PeerUnusable when it runs as another user than we do."""
    peer = peer_credentials(sock)
    if peer.uid != os.geteuid():
        raise PeerUnusable(
            f"the process at the other end (pid {peer.pid}) belongs to user {peer.uid}, not {os.geteuid()}",
            remedy="Run all processes of one installation as one user.",
            took_effect=False,
        )
    return peer
