"""A DNS server on a free port of this machine: real packets over UDP and TCP, and what a test lets it answer."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

_MOST_UDP_BYTES = 512


class DnsServer:
    """`records` are (name, type) -> (TTL, texts). `fails`: SERVFAIL to everybody. `asked` counts questions."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self.fails = False
        self.by_tcp = 0
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.address = ""

    def say(self, name: str, *targets: str, ttl_s: int = 0) -> None:
        """SRV records: "host:port"."""
        texts = [f"0 0 {target.rpartition(':')[2]} {target.rpartition(':')[0]}." for target in targets]
        self.records[name, "SRV"] = ttl_s, texts

    def host(self, name: str, *ips: str) -> None:
        self.records[name, "A"] = 0, list(ips)

    async def was_asked(self, name: str) -> None:
        """Wait for the next question of this name."""
        async with asyncio.timeout(20):
            while await self.asked.get() != name:
                pass

    def answer(self, packet: bytes) -> dns.message.Message:
        query = dns.message.from_wire(packet)
        (question,) = query.question
        name = question.name.to_text(omit_final_dot=True)
        self.asked.put_nowait(name)
        response = dns.message.make_response(query)
        kind = dns.rdatatype.to_text(question.rdtype)
        ttl, texts = self.records.get((name, kind), (0, []))
        if self.fails:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif texts:
            response.answer.append(dns.rrset.from_text_list(question.name, ttl, "IN", kind, texts))
        elif name not in {known for known, _ in self.records}:
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        response = self._server.answer(data)
        packet = response.to_wire(max_size=1 << 16)
        if len(packet) > _MOST_UDP_BYTES:
            response.answer.clear()
            response.flags |= dns.flags.TC
            packet = response.to_wire()
        self._transport.sendto(packet, addr)


@contextlib.asynccontextmanager
async def dns_server() -> AsyncIterator[DnsServer]:
    server = DnsServer()

    async def by_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        packet = server.answer(await reader.readexactly(length)).to_wire(max_size=1 << 16)
        server.by_tcp += 1
        writer.write(struct.pack("!H", len(packet)) + packet)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    streams = await asyncio.start_server(by_tcp, "127.0.0.1", 0)
    port: int = streams.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(server), ("127.0.0.1", port))
    server.address = f"127.0.0.1:{port}"
    try:
        yield server
    finally:
        datagrams.close()
        streams.close()
        await streams.wait_closed()


@contextlib.contextmanager
def dns_server_beside() -> Iterator[DnsServer]:
    """The same on a thread of its own, for tests whose own one waits for processes."""
    served, over = threading.Event(), threading.Event()
    servers: list[DnsServer] = []

    async def serve() -> None:
        async with dns_server() as server:
            servers.append(server)
            served.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert served.wait(20)
        yield servers[0]
    finally:
        over.set()
        thread.join()
