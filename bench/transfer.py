"""GB/s of the same-host sender, and its ratio to bare memmove of the same pages in the same run.

    python bench/transfer.py [--mebibytes 64] [--repeats 9] [--threads 1]

"bare" copies the same pages in the same order by calling memmove in a loop, on the calling thread. Both go from
private memory into a sealed memfd, in turns; the best of the repeats counts. "write+wake" is the time from launch to
completion of a single page.
"""

from __future__ import annotations

import argparse
import ctypes
import select
import statistics
import time
from collections.abc import Callable

import numpy as np

from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.runs import Pages, copy_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Write
from quiesce.transport.shm import ShmReceiver, ShmSender, ShmTarget

NOBODY = Peer(0, Incarnation("0" * 32))
PAGE_BYTES = (4 << 10, 64 << 10, 1 << 20)


class Bench:
    """One page size: a full source pool, a touched target pool, a sender between them."""

    def __init__(self, page_bytes: int, total_bytes: int, threads: int) -> None:
        layout = Layout(layers=2, kv_heads=1, head_dim=64, page_size=page_bytes // 1024)
        self.pages = total_bytes // layout.page_bytes
        self.n_bytes = self.pages * layout.page_bytes
        self.source, self.target = Pool.private(layout, self.pages), Pool.shared(layout, self.pages, 0)
        self.source.page_view()[...] = 7
        self.target.page_view()[...] = 1  # so that no page fault is measured
        self.sender = ShmSender(self.source, threads)
        self.lent: ShmTarget = self.sender.open_target(*ShmReceiver(self.target).describe(NOBODY))
        self.lent.pool.page_view()[...] = 2

    def order(self, kind: str) -> tuple[Pages, Pages]:
        pages = np.arange(self.pages, dtype=np.int32)
        if kind == "contiguous":
            return pages, pages
        random = np.random.default_rng(11)
        return random.permutation(pages), random.permutation(pages)

    def send(self, source: Pages, target: Pages) -> None:
        self.sender.launch(self.lent, Write(1, source, target, PageTag(5)))
        select.select([self.sender.completion_fd], [], [])
        (completion,) = self.sender.completions()
        assert completion.outcome is Outcome.LANDED, completion.error

    def bare(self, source: Pages, target: Pages) -> None:
        runs, size = copy_runs(source, target), self.source.layout.page_bytes
        to, origin = self.lent.pool.base_address, self.source.base_address
        for s, t, n in zip(runs.source.tolist(), runs.target.tolist(), runs.pages.tolist(), strict=True):
            ctypes.memmove(to + t * size, origin + s * size, n * size)

    def close(self) -> None:
        self.sender.close()
        self.source.close()
        self.target.close()


def seconds(call: Callable[[Pages, Pages], None], source: Pages, target: Pages) -> float:
    start = time.perf_counter()
    call(source, target)
    return time.perf_counter() - start


def report(bench: Bench, kind: str, repeats: int) -> str:
    source, target = bench.order(kind)
    sent, bare = [], []
    for _ in range(repeats):
        sent.append(seconds(bench.send, source, target))
        bare.append(seconds(bench.bare, source, target))
    fast, floor = bench.n_bytes / min(sent) / 1e9, bench.n_bytes / min(bare) / 1e9
    wake = statistics.median(seconds(bench.send, source[:1], target[:1]) for _ in range(300))
    size = f"{bench.source.layout.page_bytes >> 10} KiB"
    ratio = statistics.median(b / s for s, b in zip(sent, bare, strict=True))
    return f"{size:>9}  {kind:<10}  {fast:6.2f}  {floor:6.2f}  {fast / floor:6.2f}  {ratio:6.2f}  {wake * 1e6:8.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=64, help="bytes moved per measurement")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="copying threads of the sender")
    options = parser.parse_args()
    print("     page  order         sent    bare   ratio  median  write+wake")
    print("                         GB/s    GB/s    best   ratio          us")
    for page_bytes in PAGE_BYTES:
        bench = Bench(page_bytes, options.mebibytes << 20, options.threads)
        for kind in ("contiguous", "random"):
            print(report(bench, kind, options.repeats), flush=True)
        bench.close()


if __name__ == "__main__":
    main()
