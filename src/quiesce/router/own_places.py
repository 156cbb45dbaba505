"""Where this router itself listens for workers: nobody else is dialled there."""

from __future__ import annotations

import os

from quiesce.control.address import Address, TcpAddress, is_loopback, is_wildcard, place_of

MOST_FOUND = 64


class OwnPlaces:
    """Its own --control-listen, and under which other addresses it has reached that when it dialled."""

    def __init__(self) -> None:
        self._listening: list[Address] = []
        self._found: dict[Address, None] = {}

    def listens_at(self, address: Address) -> None:
        self._listening.append(address)

    def find(self, address: Address) -> None:
        """Who answered there was the router itself. Of such names there may be any number; the last are remembered."""
        self._found[place_of(address)] = None
        if len(self._found) > MOST_FOUND:
            del self._found[next(iter(self._found))]

    def holds(self, address: Address) -> bool:
        """Whether who dials this surely reaches the router itself, as far as that is known."""
        return place_of(address) in self._found or any(_leads_to(each, address) for each in self._listening)


def _leads_to(listening: Address, address: Address) -> bool:
    if isinstance(listening, TcpAddress) and isinstance(address, TcpAddress):
        one_family = (":" in listening.host) == (":" in address.host)  # nobody here listens on both with one socket
        everywhere = is_wildcard(listening.host) and is_loopback(address.host) and one_family
        return (everywhere and listening.port == address.port) or place_of(listening) == place_of(address)
    if isinstance(listening, TcpAddress) or isinstance(address, TcpAddress):
        return False
    return os.path.realpath(listening) == os.path.realpath(address)
