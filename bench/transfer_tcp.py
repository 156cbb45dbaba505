"""GB/s of the TCP transport, and its ratio to a bare blocking socket that moves the same pages in the same order.

    python bench/transfer_tcp.py [--mebibytes 64] [--repeats 9]

The receiver is a process of its own in both cases. "bare" sends page by page with `sendall` and receives each with
`recv_into` at its place, over loopback with the same buffers, without leases, tags or replies, but one byte at the end.
Both run in turns; the best of the repeats counts, and the median of the ratios.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import socket
import statistics
import time
from collections.abc import Callable

import numpy as np

from quiesce.ids import PageTag
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.conformance.patterns import layout_of
from quiesce.transport.conformance.stage import Actor
from quiesce.transport.contract import Write
from quiesce.transport.tcp.sender import TcpSender
from quiesce.transport.tcp.sockets import tune

PAGE_BYTES = (4 << 10, 64 << 10, 1 << 20)
TAG = 5


def take(listener: socket.socket, page_bytes: int, order: list[int], repeats: int) -> None:
    """The bare receiver: its memory is touched before, so that no page fault is measured."""
    sock, _ = listener.accept()
    tune(sock)
    memory = memoryview(bytearray(os.urandom(1) * (page_bytes * len(order))))
    for _ in range(repeats):
        for page in order:
            view = memory[page * page_bytes : (page + 1) * page_bytes]
            got = 0
            while got < page_bytes:
                got += sock.recv_into(view[got:])
        sock.sendall(b"k")


class Bench:
    """One page size: a full source pool, a receiver process with an armed lease, and a bare pair of sockets."""

    def __init__(self, page_bytes: int, total_bytes: int, repeats: int) -> None:
        self.page_bytes, self.pages = page_bytes, total_bytes // page_bytes
        self.order: Pages = np.random.default_rng(11).permutation(self.pages).astype(np.int32)
        self.source = Pool.private(layout_of(page_bytes), self.pages)
        self.source.page_view()[...] = 7
        self._begin_ours()
        self._begin_bare(repeats)

    def _begin_ours(self) -> None:
        self.receiver = Actor("receiver")
        self.receiver.call("open", "tcp", self.page_bytes, self.pages, 1, 0)
        self.receiver.ask("describe")
        descriptor, _ = self.receiver.answer()
        self.receiver.call("watch", os.getpid())
        self.receiver.call("arm", TAG, list(range(self.pages)), 0)
        self.sender = TcpSender(self.source)
        self.target = self.sender.open_target(descriptor, [])
        self.ours()  # connects, and touches every page

    def _begin_bare(self, repeats: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        arguments = (listener, self.page_bytes, self.order.tolist(), repeats)
        self.process = multiprocessing.get_context("fork").Process(target=take, args=arguments)
        self.process.start()
        self.sock = socket.create_connection(listener.getsockname())
        tune(self.sock)
        listener.close()

    def ours(self) -> None:
        pages = np.arange(self.pages, dtype=np.int32)
        self.sender.launch(self.target, Write(1, pages, self.order, PageTag(TAG)))
        select.select([self.sender.completion_fd], [], [])
        (completion,) = self.sender.completions()
        assert completion.outcome is Outcome.LANDED, completion.error

    def bare(self) -> None:
        memory = self.source.page_view()
        for page in range(self.pages):
            self.sock.sendall(memory[page].data)
        assert self.sock.recv(1) == b"k"

    def close(self) -> None:
        self.sock.close()
        self.process.join()
        self.sender.close()
        self.receiver.close()
        self.source.close()


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def report(bench: Bench, repeats: int) -> str:
    pairs = [(seconds(bench.ours), seconds(bench.bare)) for _ in range(repeats)]
    n_bytes = bench.pages * bench.page_bytes
    ours, bare = (n_bytes / min(column) / 1e9 for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / o for o, b in pairs)
    return f"{bench.page_bytes >> 10:>5} KiB  {ours:6.2f}  {bare:6.2f}  {ours / bare:6.2f}  {ratio:6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=64, help="bytes moved per measurement")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    print("     page    tcp    bare   ratio  median")
    print("            GB/s    GB/s    best   ratio")
    for page_bytes in PAGE_BYTES:
        bench = Bench(page_bytes, options.mebibytes << 20, options.repeats)
        print(report(bench, options.repeats), flush=True)
        bench.close()


if __name__ == "__main__":
    main()
