"""How fast each transport places pages in random order, and its ratio to memmove and to what is bare for it.

    python bench/transfer.py [shm tcp tcp+tls mooncake nixl tcp-pull nixl-pull] [--mebibytes 64] [--rounds 15]
                             [--plot FILE.svg]

One round is memmove, the bare way and the transport, of the same pages in the same order; GB/s are the medians of the
rounds, ratios the medians of each round's ratio. Ours includes what the protocol needs: a tag for each page, and the
wake-up at the end. Bare, without either:

    shm            memmove in a loop
    tcp, tcp+tls   one blocking socket as the kernel gives it, with TCP_NODELAY: `sendall` of each run, `recv_into` at
                   its place, one byte back at the end
    mooncake, nixl the library, called directly, with the same joined runs
    tcp-pull,
    nixl-pull      no bare way: what the same transport does when it pushes, so that the ratio is pull's to push

A socket's speed jumps from one moment to the next. So with tcp a round is a quarter of the pages and there are four
times as many, and this process has one CPU and both receivers have another. It also depends on which memory a process
was given, for as long as it lives: so every row is measured three times, each with processes of its own.

Each has its receiver in a process of its own. Before anything is timed, ours shows that the pages have arrived.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import mmap
import multiprocessing
import os
import secrets
import select
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quiesce.audit.plots import LEFT, RIGHT, ROW, WIDTH, axis, drawing, text
from quiesce.ids import PageTag
from quiesce.kv.runs import copy_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.conformance.candidates import candidate, trial_of
from quiesce.transport.conformance.patterns import digest_of, fill, layout_of
from quiesce.transport.conformance.pull_stage import WINDOW
from quiesce.transport.conformance.stage import TAG, Actor
from quiesce.transport.contract import Write
from quiesce.transport.mooncake import library as mooncake
from quiesce.transport.nixl import library as nixl
from quiesce.transport.onesided import Copies
from quiesce.transport.pulling import Read
from quiesce.transport.registry import Backend, backend, installed_version

PULL = "-pull"
PAGE_BYTES = (4 << 10, 64 << 10, 1 << 20)
SHOWN_PAGES = 64
PROCESSES = multiprocessing.get_context("spawn")
SEED = 1
SPREAD = (0.25, 0.75)
MOST_S = 30.0
"""No call of a library that works takes so long."""
QUARTERS = 4
LIVES = 3
SOCKETS = ("tcp", "tcp+tls")
"""Measured in short rounds, each side on a CPU of its own."""
Runs = list[tuple[int, int, int]]
"""Of each joined copy: bytes from the begin of the source, of the target, and its length."""


class Bench:
    """One transport and one page size: a full source, its sender, and the receiver's process with an armed lease."""

    def __init__(self, name: str, page_bytes: int, total_bytes: int) -> None:
        self.name = name
        self.pages = total_bytes // page_bytes
        random = np.random.default_rng(11)
        self.order = random.permutation(self.pages).astype(np.int32), random.permutation(self.pages).astype(np.int32)
        self.parts = np.array_split(np.arange(self.pages), QUARTERS if name.startswith(SOCKETS) else 1)
        self.runs = [self._runs(part, page_bytes) for part in self.parts]
        self.source, self.floor = (Pool.private(layout_of(page_bytes), self.pages) for _ in range(2))
        fill(self.source, SEED)
        self.floor.page_view()[...] = 1  # so that no page fault is measured
        self._begin(name)

    def _runs(self, part: np.ndarray[Any, Any], page_bytes: int) -> Runs:
        runs = copy_runs(*(each[part] for each in self.order))
        columns = (runs.source, runs.target, runs.pages)
        return list(zip(*((each * page_bytes).tolist() for each in columns), strict=True))

    def _begin(self, name: str) -> None:
        self.receiver = Actor("receiver")
        self.receiver.call("open", name, self.source.layout.page_bytes, self.pages, 1, 0)
        self.receiver.ask("describe")
        descriptor, fds = self.receiver.answer()
        self.receiver.call("watch", os.getpid())
        self.receiver.call("arm", TAG, list(range(self.pages)), 0)
        self.sender = candidate(name).sender(self.source, 1, MOST_S)
        self.target = self.sender.open_target(descriptor, fds)
        for fd in fds:
            os.close(fd)
        for number in range(len(self.parts)):  # connects, and touches every page
            self.ours(number)
        self._look()

    def _look(self) -> None:
        """The pages that were named have arrived, with their tags."""
        source, target = (each[:SHOWN_PAGES].tolist() for each in self.order)
        told = self.receiver.call("pages", target)
        assert told == [digest_of(SEED, page, self.source.layout.page_bytes) for page in source], "other bytes arrived"
        assert self.receiver.call("tags", target) == [TAG] * len(target), "tags did not arrive"

    def ours(self, number: int, pages: int | None = None) -> None:
        source, target = (each[self.parts[number % len(self.parts)][:pages]] for each in self.order)
        self.sender.launch(self.target, Write(1, source, target, PageTag(TAG)))
        select.select([self.sender.completion_fd], [], [])
        (completion,) = self.sender.completions()
        assert completion.outcome is Outcome.LANDED, completion.error

    def memmove(self, number: int) -> None:
        to, origin = self.floor.base_address, self.source.base_address
        for source, target, n_bytes in self.runs[number % len(self.parts)]:
            ctypes.memmove(to + target, origin + source, n_bytes)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        self.source.close()
        self.floor.close()


class PullBench(Bench):
    """The same pages, read: the lender's process has the full source, and the puller is here."""

    def _begin(self, name: str) -> None:
        page_bytes, pushed = self.source.layout.page_bytes, _known(name)
        assert pushed.puller is not None
        self.receiver = Actor("lender")
        self.receiver.call("open", pushed.name, page_bytes, self.pages, 0)
        self.receiver.call("fill", SEED)
        self.receiver.ask("describe")
        descriptor, fds = self.receiver.answer()
        self.receiver.call("watch", os.getpid())
        self.receiver.call("lend", WINDOW, list(range(self.pages)))
        self.pulled = Pool.private(layout_of(page_bytes), self.pages)
        self.puller = pushed.puller(self.pulled, 1, MOST_S)
        self.lent = self.puller.open_source(descriptor, fds)
        for number in range(len(self.parts)):
            self.ours(number)
        self._look()

    def _look(self) -> None:
        source, target = self.order
        assert np.array_equal(self.pulled.page_view()[target], self.source.page_view()[source]), "other bytes arrived"
        assert (self.pulled.tags == TAG).all(), "tags did not arrive"

    def ours(self, number: int, pages: int | None = None) -> None:
        source, target = (each[self.parts[number % len(self.parts)][:pages]] for each in self.order)
        self.puller.launch(self.lent, Read(1, source, PageTag(WINDOW), target, PageTag(TAG)))
        select.select([self.puller.completion_fd], [], [])
        (completion,) = self.puller.completions()
        assert completion.outcome is Outcome.LANDED, completion.error

    def close(self) -> None:
        self.puller.close()
        self.receiver.close()
        for each in (self.source, self.floor, self.pulled):
            each.close()


class Pushed:
    """What the same transport does when it pushes."""

    def __init__(self, bench: Bench) -> None:
        page_bytes = bench.source.layout.page_bytes
        pushing = Bench(bench.name.removesuffix(PULL), page_bytes, bench.pages * page_bytes)
        self.copy, self.close, self.process = pushing.ours, pushing.close, pushing.receiver


class BareMemmove:
    def __init__(self, bench: Bench) -> None:
        self.copy = bench.memmove

    def close(self) -> None:
        pass


class BareSocket:
    def __init__(self, bench: Bench) -> None:
        self.memory = memoryview(bench.source.page_view().reshape(-1).data)
        self.runs = bench.runs
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.process = PROCESSES.Process(target=take, args=(listener, bench.runs, len(self.memory)))
            self.process.start()
            self.sock = socket.create_connection(listener.getsockname())
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def copy(self, number: int) -> None:
        for source, _, n_bytes in self.runs[number % len(self.runs)]:
            self.sock.sendall(self.memory[source : source + n_bytes])
        assert self.sock.recv(1) == b"k"

    def close(self) -> None:
        self.sock.close()
        self.process.join()


def take(listener: socket.socket, parts: list[Runs], total_bytes: int) -> None:
    """The receiver of the bare socket, whose rounds come in turn; its memory is touched before."""
    sock, _ = listener.accept()
    memory = memoryview(mmap.mmap(-1, total_bytes))  # at a page's begin: some processors copy slowly to elsewhere
    memory[:] = bytes(total_bytes)
    for runs in itertools.cycle(parts):
        for _, target, n_bytes in runs:
            end = target + n_bytes
            while target < end:
                if not (got := sock.recv_into(memory[target:end])):
                    return
                target += got
        sock.sendall(b"k")


class BareLibrary:
    """A library, called directly. Its receiver is a process of its own, which only touches and registers memory."""

    def __init__(self, bench: Bench) -> None:
        self.region = bench.source.base_address, bench.source.page_view().nbytes
        self.pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=self.lend, args=(theirs, self.region[1]))
        self.process.start()
        theirs.close()
        kv_address, description = self.pipe.recv()
        begins = np.array([self.region[0], kv_address, 0], np.uint64)
        self.join(np.array(bench.runs[0], np.uint64) + begins, description)

    @staticmethod
    def lend(pipe: Connection, n_bytes: int) -> None:
        """In the receiver: say where its memory is and how it is reached, and wait to be killed."""
        raise NotImplementedError

    def join(self, copies: Copies, description: Any) -> None:
        raise NotImplementedError

    def copy(self, _: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.process.kill()
        self.process.join()


class BareMooncake(BareLibrary):
    @staticmethod
    def lend(pipe: Connection, n_bytes: int) -> None:
        memory, engine = np.ones(n_bytes, np.uint8), mooncake.engine("127.0.0.1", MOST_S)
        assert not engine.register_memory(memory.ctypes.data, n_bytes)
        pipe.send((memory.ctypes.data, f"127.0.0.1:{engine.get_rpc_port()}"))
        pipe.poll(None)

    def join(self, copies: Copies, description: Any) -> None:
        self.session, self.engine, most = description, mooncake.engine("127.0.0.1", MOST_S), mooncake.MOST_ENTRIES
        assert not self.engine.register_memory(*self.region)
        self.batches = [copies[first : first + most].T.tolist() for first in range(0, len(copies), most)]

    def copy(self, _: int) -> None:
        for batch in self.batches:
            assert not self.engine.batch_transfer_sync_write(self.session, *batch), "Mooncake reports a failure"


class BareNixl(BareLibrary):
    """Its receiver has the library's own settings: a thread that spins. So it is stopped out of its turn."""

    @staticmethod
    def lend(pipe: Connection, n_bytes: int) -> None:
        memory, bindings = np.ones(n_bytes, np.uint8), nixl.library()
        os.environ["UCX_NET_DEVICES"] = "lo"
        config = bindings.nixlAgentConfig()
        config.useProgThread = True
        agent = bindings.nixlAgent(f"bare-{secrets.token_hex(8)}", config)
        agent.createBackend("UCX", agent.getPluginParams("UCX")[0])
        agent.registerMem(nixl.memory((memory.ctypes.data, n_bytes)))
        pipe.send((memory.ctypes.data, bytes(agent.getLocalMD())))
        pipe.poll(None)

    def join(self, copies: Copies, description: Any) -> None:
        self.nixl, device = nixl.library(), np.zeros(len(copies), np.uint64)
        self.agent: Any = nixl.agent(f"bare-{secrets.token_hex(8)}", "127.0.0.1", progress=False)
        self.agent.registerMem(nixl.memory(self.region))
        self.peer = self.agent.loadRemoteMD(description).decode()
        self.sides = [np.stack([copies[:, side], copies[:, 2], device], axis=1) for side in (0, 1)]

    def copy(self, _: int) -> None:
        os.kill(self.process.pid or 0, signal.SIGCONT)
        lists = (self.nixl.nixlXferDList(self.nixl.DRAM_SEG, side) for side in self.sides)
        handle = self.agent.createXferReq(self.nixl.NIXL_WRITE, *lists, self.peer)
        status, until_s = self.agent.postXferReq(handle), time.perf_counter() + MOST_S
        while status == self.nixl.NIXL_IN_PROG and time.perf_counter() < until_s:
            status = self.agent.getXferStatus(handle)
        assert status == self.nixl.NIXL_SUCCESS, f"NIXL says {status}"
        self.agent.releaseXferReq(handle)
        os.kill(self.process.pid or 0, signal.SIGSTOP)


BARE: dict[str, Callable[[Bench], Any]] = {
    "shm": BareMemmove,
    "tcp": BareSocket,
    "tcp+tls": BareSocket,
    "mooncake": BareMooncake,
    "nixl": BareNixl,
    "tcp-pull": Pushed,
    "nixl-pull": Pushed,
}


class Row(NamedTuple):
    """What one transport did with pages of one size: medians of the rounds, and between what half of the ratios are."""

    name: str
    pages_per_s: float
    gb_per_s: float
    memmove_gb_per_s: float
    to_memmove: float
    bare_gb_per_s: float
    to_bare: float
    to_bare_range: tuple[float, float]
    one_page_us: float

    def __str__(self) -> str:
        low, high = self.to_bare_range
        return (
            f"{self.name:<17} {self.pages_per_s:>9,.0f} {self.gb_per_s:>6.3f} {self.memmove_gb_per_s:>8.2f} "
            f"{self.to_memmove:>6.3f} {self.bare_gb_per_s:>8.3f} {self.to_bare:>6.2f} "
            f"{low:>5.2f} to {high:<5.2f} {self.one_page_us:>8.0f}"
        )


HEAD = """\
                      pages            memmove  ratio     bare  ratio    half are  one page
                  a second   GB/s     GB/s             GB/s            within         us"""


def seconds(call: Callable[[int], None], number: int) -> float:
    start = time.perf_counter()
    call(number)
    return time.perf_counter() - start


def in_turns(number: int, *calls: Callable[[int], None]) -> list[float]:
    """The seconds of each of `calls`; odd rounds go backwards, so that none always comes after the same one."""
    step = -1 if number % 2 else 1
    return [seconds(each, number) for each in calls[::step]][::step]


def bind(pid: int, cpus: Iterable[int]) -> None:
    """All threads that a process has by now, and those that they begin."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cpus)


@contextlib.contextmanager
def bound(bench: Bench, bare: Any) -> Iterator[None]:
    """Where there are two CPUs, this process has one and both receivers have the other, for the block."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(bench.parts) > 1 and len(cpus) > 1:
        for pid, cpu in ((os.getpid(), cpus[0]), (bench.receiver.pid, cpus[1]), (bare.process.pid, cpus[1])):
            bind(pid, [cpu])
    try:
        yield
    finally:
        bind(os.getpid(), cpus)


def measure(name: str, page_bytes: int, total_bytes: int, rounds: int) -> Row:
    lives = [_one_life(name, page_bytes, total_bytes, max(1, rounds // LIVES)) for _ in range(LIVES)]
    took, one_page_s = np.concatenate([each[0] for each in lives]), statistics.median(each[1] for each in lives)
    floor_s, bare_s, ours_s = np.median(took, axis=0) * (QUARTERS if name.startswith(SOCKETS) else 1)
    gb = total_bytes / 1e9
    to_bare = took[:, 1] / took[:, 2]
    return Row(
        *(f"{name:<9} {_size(page_bytes)}", total_bytes / page_bytes / ours_s, gb / ours_s),
        *(gb / floor_s, float(np.median(took[:, 0] / took[:, 2])), gb / bare_s, float(np.median(to_bare))),
        *(tuple(np.quantile(to_bare, SPREAD)), one_page_s * 1e6),
    )


def _one_life(name: str, page_bytes: int, total_bytes: int, rounds: int) -> tuple[np.ndarray[Any, Any], float]:
    """In processes and memory of its own: seconds of (memmove, bare, ours) in each round, and of one page."""
    made = PullBench if name.endswith(PULL) else Bench
    with contextlib.ExitStack() as ends:
        told = trial_of("tcp", Path(ends.enter_context(tempfile.TemporaryDirectory()))) if name == "tcp+tls" else name
        bench = ends.enter_context(contextlib.closing(made(told, page_bytes, total_bytes)))
        with contextlib.closing(BARE[name](bench)) as bare, bound(bench, bare):
            parts = len(bench.parts)
            for number in range(parts):  # connects
                bare.copy(number)
            took = [in_turns(number, bench.memmove, bare.copy, bench.ours) for number in range(rounds * parts)]
        return np.array(took), statistics.median(seconds(lambda _: bench.ours(0, 1), 0) for _ in range(100))


def _size(n_bytes: int) -> str:
    return f"{n_bytes >> 10} KiB" if n_bytes < 1 << 20 else f"{n_bytes >> 20} MiB"


STYLE = (
    "<style>text{font:12px sans-serif}.faint{fill:#777}.axis{stroke:#777}.range{stroke:#222}.grid{stroke:#ddd}"
    ".bare{fill:#2a6fb0}.memmove{fill:#c9862b}</style><rect width='100%' height='100%' fill='#fff'/>"
)


def plot(rows: list[Row]) -> str:
    """Two bars for each row: its ratio to what is bare, with a line where half of the rounds are, and to memmove."""
    top = max(1.0, *(each.to_bare_range[1] for each in rows)) * 1.1
    scale = (WIDTH - LEFT - RIGHT) / top
    marks = [text(LEFT, 14, "ratio to bare", "start", "bare"), text(LEFT + 100, 14, "to memmove", "start", "memmove")]
    for number, row in enumerate(rows):
        y, (low, high) = ROW * number + 24, row.to_bare_range
        marks.append(text(LEFT - 12, y + 15, f"{row.name}, {row.gb_per_s:.2g} GB/s", "end"))
        bars = (("bare", row.to_bare, high, y), ("memmove", row.to_memmove, row.to_memmove, y + 13))
        for style, ratio, end, at in bars:
            marks.append(f'<rect class="{style}" x="{LEFT}" y="{at}" width="{ratio * scale:.1f}" height="12"/>')
            marks.append(text(LEFT + end * scale + 6, at + 10, f"{ratio:.2g}", "start", "faint"))
        ends = f'x1="{LEFT + low * scale:.1f}" x2="{LEFT + high * scale:.1f}"'
        marks.append(f'<line class="range" {ends} y1="{y + 6}" y2="{y + 6}"/>')
    height = ROW * len(rows) + 54
    grid = axis(height - 26, [(each / 4, f"{each / 4:g}") for each in range(int(top * 4) + 1)], top)
    return drawing(height, "Transports' speed as a ratio to bare and to memmove", [STYLE, *grid, *marks])


def _known(name: str) -> Backend:
    return backend(name.removesuffix("+tls").removesuffix(PULL))


def say_where() -> None:
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    known = {_known(name).name: _known(name).library for name in BARE}
    libraries = {name: installed_version(library) for name, library in known.items() if library}
    versions = ", ".join(f"{name} {version or 'absent'}" for name, version in libraries.items())
    print(f"{os.cpu_count()} CPUs,{cpu.partition(':')[2]}; Linux {os.uname().release}; {versions}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transports", nargs="*", metavar="TRANSPORT", help=", ".join(BARE) + "; all when none is named")
    parser.add_argument("--mebibytes", type=int, default=64, help="bytes moved per measurement")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    options = parser.parse_args()
    if unknown := set(options.transports) - BARE.keys():
        parser.error(f"there is nothing bare to compare {', '.join(sorted(unknown))} with")
    say_where()
    print(HEAD)
    rows = []
    for name in options.transports or BARE:
        if why := _known(name).missing():
            print(f"{name:<9} not measured: {why}")
            continue
        for page_bytes in PAGE_BYTES:
            try:
                rows.append(measure(name, page_bytes, options.mebibytes << 20, options.rounds))
                print(rows[-1], flush=True)
            except Exception as error:  # whatever a library raises, the others are measured
                print(f"{name:<9} {_size(page_bytes)} not measured: {error}", flush=True)
    if options.plot and rows:
        options.plot.write_text(plot(rows) + "\n")


if __name__ == "__main__":
    main()
