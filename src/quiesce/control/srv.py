"""Workers that DNS names: the SRV records of a name, looked up again when their time is over."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from quiesce.control.address import TcpAddress, parse_address
from quiesce.control.workers_file import MOST_WORKERS
from quiesce.errors import ConfigurationError, MachineLacksError, PeerUnusable, in_checkout

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver
    from dns.exception import DNSException
    from dns.rdtypes.IN.SRV import SRV

LEAST_TTL_S, MOST_TTL_S = 1.0, 60.0
"""Whatever a record says of its time: nobody is asked more often, and a change is seen as late as this."""
AGAIN_S = 5.0
LOOKUP_S = 5.0

_NAME = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*\.?"
)

_log = logging.getLogger(__name__)


class Found(msgspec.Struct, frozen=True):
    """Where the workers of a name are, in an order of their own, and for how long that is so."""

    addresses: tuple[TcpAddress, ...]
    ttl_s: float


class Lookup(Protocol):
    async def look(self, name: str) -> Found:
        """Raises PeerUnusable when DNS did not say where anybody is."""


def check_srv(names: Iterable[str], server: str | None) -> None:
    """Raises ConfigurationError for what cannot be asked for, MachineLacksError without the library that asks."""
    problems = [
        f"--workers-srv {name!r} is no DNS name: write _quiesce._tcp.example.org"
        for name in names
        if len(name) > 253 or not _NAME.fullmatch(name)
    ]
    if problems:
        raise ConfigurationError(problems)
    if names:
        SrvLookup(server)


class SrvLookup:
    """Asks the DNS servers of /etc/resolv.conf, or `server` ("127.0.0.1:8600"), which then knows targets as well."""

    def __init__(self, server: str | None) -> None:
        try:
            from dns.asyncresolver import Resolver
            from dns.resolver import NoResolverConfiguration
        except ModuleNotFoundError as missing:
            message = f"this installation has no {missing.name}, which --workers-srv needs."
            raise MachineLacksError(message, remedy=in_checkout("hosts")) from None
        self._asks_itself = server is not None
        try:
            self._resolver = Resolver(configure=server is None)
        except NoResolverConfiguration as error:
            raise MachineLacksError(
                f"/etc/resolv.conf names no DNS server: {error}", remedy="Give --dns-server."
            ) from None
        if server is not None:
            _point_at(self._resolver, server)

    async def look(self, name: str) -> Found:
        """In a task of its own: the library waits with what may swallow the cancellation of whoever awaits it (Python
        before 3.12), and a process that ends would go on looking."""
        looking = asyncio.ensure_future(self._look(name))
        looking.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to hear it
        try:
            await asyncio.wait({looking})
        finally:
            looking.cancel()
        return looking.result()

    async def _look(self, name: str) -> Found:
        from dns.exception import DNSException

        try:
            answer = await self._resolver.resolve(name, "SRV", lifetime=LOOKUP_S, search=True)
            if len(answer) > MOST_WORKERS:
                raise PeerUnusable(f"{name} has {len(answer)} SRV records; at most {MOST_WORKERS} are allowed")
            addresses = [await self._address(record) for record in answer if not _is_nobody(record)]
        except DNSException as error:
            raise PeerUnusable(f"DNS does not say who is {name}: {_reason(error)}", took_effect=False) from error
        except (OSError, ConfigurationError) as error:
            raise PeerUnusable(f"DNS says of {name} what cannot be: {error}", took_effect=False) from error
        if not addresses:
            raise PeerUnusable(f"DNS names nobody for {name}", took_effect=False)
        ttl_s = float(answer.rrset.ttl) if answer.rrset is not None else 0.0
        return Found(tuple(dict.fromkeys(addresses)), min(max(ttl_s, LEAST_TTL_S), MOST_TTL_S))

    async def _address(self, record: SRV) -> TcpAddress:
        """Raises ConfigurationError for a target that is no host."""
        host = record.target.to_text(omit_final_dot=True)
        address = parse_address(f"tcp://{host}:{record.port}")
        if not isinstance(address, TcpAddress) or address.port == 0:
            raise ConfigurationError([f"{host}: port 0 is for listening"])
        if not self._asks_itself:
            return address
        known = await self._resolver.resolve_name(host, lifetime=LOOKUP_S)
        return TcpAddress(address.host, address.port, at=min(known.addresses()))


def _reason(error: DNSException) -> str:
    """In words that are the same each time: the library's say how long it waited."""
    from dns.exception import Timeout

    return "no server answers" if isinstance(error, Timeout) else str(error)


def _point_at(resolver: Resolver, server: str) -> None:
    """Raises ConfigurationError."""
    try:
        address = parse_address(f"tcp://{server}")
        if not isinstance(address, TcpAddress):
            raise ValueError
        resolver.nameservers, resolver.port = [address.host], address.port
    except (ValueError, ConfigurationError):
        raise ConfigurationError([f"--dns-server {server!r}: write IP:PORT, an IPv6 address in brackets"]) from None


def _is_nobody(record: SRV) -> bool:
    """RFC 2782: a target of "." says that the service is not offered."""
    return bool(record.target.to_text() == ".")


async def watch_srv(
    name: str,
    lookup: Lookup,
    changed: Callable[[tuple[TcpAddress, ...]], None],
    check: Callable[[tuple[TcpAddress, ...]], None],
) -> None:
    """For ever: call `changed` with where the workers of `name` are whenever that is new, in a fixed order.

    DNS that fails, names nobody, or names what cannot be used (`check` raises ConfigurationError) changes nothing; that
    is said once.
    """
    last: tuple[TcpAddress, ...] | None = None
    said = ""
    while True:
        pause_s = AGAIN_S
        try:
            found = await lookup.look(name)
            addresses = tuple(sorted(found.addresses, key=lambda each: (each.host, each.port, each.at)))
            check(addresses)
        except (PeerUnusable, ConfigurationError) as error:
            if str(error) != said:
                _log.warning("the workers stay as they were: %s", error)
            said = str(error)
        else:
            pause_s, said = found.ttl_s, ""
            if addresses != last:
                last = addresses
                changed(addresses)
        await asyncio.sleep(pause_s)
