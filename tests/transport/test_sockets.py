"""Data connections between hosts end when the other host is gone; on one host a peer may stand still."""

from __future__ import annotations

import socket
from typing import cast

import pytest

from quiesce.transport.tcp.sockets import GONE_AFTER_S, tune


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
