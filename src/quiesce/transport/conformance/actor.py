"""A process that plays one side of a push; those of a pull are in `pull_actors`.

It is told what to do over a socket that only its director has, one call after the other, and answers each. Calls are
(name, arguments), answers (value, what was raised); descriptors travel with either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.storage import Pool, segment_of
from quiesce.transport.conformance.calls import MOST_BYTES, Answer, Call
from quiesce.transport.conformance.candidates import candidate
from quiesce.transport.conformance.guard import Canaries, bytes_at, fresh_memory, surrounded
from quiesce.transport.conformance.patterns import digest, fill, layout_of, page_pattern, shuffled
from quiesce.transport.conformance.pulse import Pulse
from quiesce.transport.conformance.segmented import LeaseByLease
from quiesce.transport.contract import Metadata, Receiver, Sender, Target, Write
from quiesce.transport.pulling import Lender, Puller

WRITER = Peer(0, Incarnation("c" * 32))
RESTING_LOOKS = 8


class PoolActor:
    """Owns a pool. `image` is a number that is another one once any byte, tag or metadata word was found changed."""

    _pool: Pool
    _kept: tuple[npt.NDArray[np.uint64], ...] = ()
    _image = 0
    _guarded = False
    _beside: tuple[int, ...] = ()

    def between_guards(self) -> None:
        """The pool that is made next has mappings of nobody's around it."""
        self._guarded = True

    def _made(self, make: Callable[[], Pool]) -> Pool:
        if not self._guarded:
            return make()
        pool, self._beside = surrounded(make)
        return pool

    def fill(self, seed: int) -> None:
        fill(self._pool, seed)

    def pages(self, pages: list[int]) -> list[bytes]:
        view = self._pool.page_view()
        return [digest(view[page]) for page in pages]

    def tags(self, pages: list[int]) -> list[int]:
        return [int(tag) for tag in self._pool.tags[pages, 0]]

    def metadata(self, slot: int) -> list[int]:
        return [int(word) for word in self._pool.metadata[slot]]

    def image(self) -> int:
        """Compared with a copy: that takes a fifth of what a digest takes."""
        words = self._pool.page_view().view(np.uint64), self._pool.tags, self._pool.metadata
        if not self._kept or not all(map(np.array_equal, words, self._kept)):
            self._kept = tuple(each.copy() for each in words)
            self._image += 1
        return self._image

    def has_begun(self, first: int, last: int) -> bool:
        """Wait until page `first` or `last` of a landing has changed from zeros: C libraries copy backward, too."""
        pages = self._pool.page_view()
        while not (pages[first].any() or pages[last].any()):
            os.sched_yield()
        return True

    def clear(self, pages: list[int]) -> None:
        self._pool.page_view()[pages] = 0

    def guard(self) -> bytes:
        """Put canaries beside the pool; their image."""
        self._canaries = Canaries(self._pool, self._beside)
        return self._canaries.image()

    def canaries(self) -> bytes:
        return self._canaries.image()

    def beat(self, fds: Sequence[int]) -> None:
        """Count there from now on, in a thread."""
        Pulse(fds[0]).start()

    def hear(self, fds: Sequence[int]) -> None:
        self._heard = Pulse(fds[0])

    def watch_landing(self, first: int, last: int) -> tuple[int, int]:
        """How often this thread looked while one of pages `first` and `last` had bytes already and one had none.

        And how far the other process counted meanwhile: by the last such look at most, so surely beside the copy.
        """
        self.has_begun(first, last)
        began = beats = self._heard.beats
        looks, pages = 0, self._pool.page_view()
        while True:
            now = self._heard.beats
            if pages[first].any() and pages[last].any():
                return looks, beats - began
            looks, beats = looks + 1, now

    def cpu_s(self) -> float:
        return time.process_time()


class WatchingActor(PoolActor):
    """Watches its peer, and counts how often it is told of its end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._dead: list[Peer] = []
        self._told = asyncio.Event()
        self._peer = WRITER

    def next_peer(self) -> None:
        """From now on it is about another life of the peer."""
        self._peer = Peer(0, Incarnation("d" * 32))

    @property
    def side(self) -> Receiver | Lender:
        raise NotImplementedError

    def describe(self) -> tuple[bytes, list[int]]:
        return self.side.describe(self._peer)

    def watch(self, pid: int) -> None:
        self.side.watch(self._peer, os.pidfd_open(pid), self._on_dead, self._loop)

    def come_first(self) -> None:
        """From now on no other thread of this process runs while this one could: what it looks at hardly changes."""
        for thread in _other_threads():
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        for thread in (0, *_other_threads()):
            os.sched_setaffinity(thread, {min(os.sched_getaffinity(0))})

    def let_others_run(self, most_s: float) -> None:
        """Until none of them wants to, `most_s` at most."""
        until_s, looks = time.monotonic() + most_s, 0
        while looks < RESTING_LOOKS and time.monotonic() < until_s:
            time.sleep(0.001)
            looks = 0 if any(_wants_to_run(each) for each in _other_threads()) else looks + 1

    def revoke(self, tag: int) -> bool:
        return self.side.revoke(PageTag(tag))

    def kill(self) -> None:
        self.side.kill(self._peer)

    def await_dead(self, most_s: float) -> int:
        """Turn the loop until `on_dead` was called, `most_s` at most; how often it was."""
        self._loop.run_until_complete(self._until_told(most_s))
        return len(self._dead)

    def image_once_dead(self, most_s: float) -> tuple[int, int]:
        """As `await_dead`, and what the pool was at that moment: who asks afterwards comes too late."""
        return self.await_dead(most_s), self.image()

    async def _until_told(self, most_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._told.wait()
                await asyncio.sleep(0)  # for a second call of `on_dead`

    def _on_dead(self, peer: Peer) -> None:
        self._dead.append(peer)
        self._told.set()

    def close(self) -> None:
        self.side.close()


class LaunchingActor(PoolActor):
    """Launches writes or reads, and waits for their ends."""

    @property
    def side(self) -> Sender | Puller:
        raise NotImplementedError

    def wait(self, count: int, timeout_s: float) -> list[tuple[int, str, str]]:
        """Completions until there are `count`, or for `timeout_s`: (id, outcome, error)."""
        done = self._ends()
        until_s = time.monotonic() + timeout_s
        while len(done) < count and (left_s := until_s - time.monotonic()) > 0:
            select.select([self.side.completion_fd], [], [], left_s)
            done += self._ends()
        return done

    def close(self) -> list[tuple[int, str, str]]:
        """Close the side; the completions that were still due."""
        self.side.close()
        return self._ends()

    def _ends(self) -> list[tuple[int, str, str]]:
        return [(each.id, each.outcome.name, each.error) for each in self.side.completions()]


def _other_threads() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()} - {threading.get_native_id()}


def _wants_to_run(thread: int) -> bool:
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "R"


class ReceiverActor(WatchingActor):
    """Lends its pool to be written."""

    def open(self, backend: str, page_bytes: int, pages: int, slots: int, port: int) -> int:
        made = candidate(backend)
        make = Pool.shared if made.shared_pool else Pool.private
        self._pool = self._made(lambda: make(layout_of(page_bytes), pages, slots))
        self._receiver = made.receiver(self._pool, "127.0.0.1", port)
        self._look()
        return int(getattr(self._receiver, "port", 0))

    @property
    def side(self) -> Receiver:
        return self._receiver

    def arm(self, tag: int, pages: list[int], slot: int) -> None:
        self._receiver.arm(PageTag(tag), np.array(pages, np.int32), slot)
        self._look()

    def arm_all(self, tag: int) -> None:
        self._receiver.arm(PageTag(tag), np.arange(self._pool.pages, dtype=np.int32), 0)
        self._look()

    def disarm(self, tag: int) -> None:
        self._receiver.disarm(PageTag(tag))

    def reclaim(self, tag: int) -> None:
        """The lease is over, by a fence: its memory is somebody else's."""
        if isinstance(self._receiver, LeaseByLease):
            self._receiver.reclaim(PageTag(tag))
        self._look()

    def slots(self) -> int:
        return self._pool.slots

    def address(self) -> int:
        return self._pool.base_address

    def use_again(self) -> None:
        """Fresh memory in the place of the pool, whose mapping is gone."""
        n_bytes = segment_of(self._pool.layout, self._pool.pages, self._pool.slots).n_bytes
        self._fresh = fresh_memory(self._pool.base_address, n_bytes), n_bytes

    def is_untouched(self) -> bool:
        return not bytes_at(*self._fresh).strip(b"\0")

    def _look(self) -> None:
        """Where a receiver lends memory of its own, that is decode's."""
        if isinstance(self._receiver, LeaseByLease):
            self._pool, self._beside = self._receiver.memory, ()

    def wrongly_shuffled(self, seed: int, tag: int) -> int:
        """How many pages do not hold what `launch_shuffled` sent there, or do not bear its tag."""
        view, n_bytes = self._pool.page_view(), self._pool.layout.page_bytes
        sources = shuffled(self._pool.pages).tolist()
        right = [np.array_equal(view[i], page_pattern(seed, page, n_bytes)) for i, page in enumerate(sources)]
        return self._pool.pages - int((np.array(right) & (self._pool.tags[:, 0] == tag)).sum())


class WriterActor(LaunchingActor):
    """Owns the source pool and writes."""

    def open(self, backend: str, page_bytes: int, pages: int, call_deadline_s: float) -> None:
        self._pool = Pool.private(layout_of(page_bytes), pages)
        self._sender = candidate(backend).sender(self._pool, 1, call_deadline_s)

    @property
    def side(self) -> Sender:
        return self._sender

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> None:
        self._target: Target = self._sender.open_target(descriptor, fds)

    def launch(self, id_: int, source: list[int], target: list[int], tag: int, words: list[int] | None) -> None:
        metadata = None if words is None else Metadata(words[0], tuple(words[1:]))
        pages = np.array(source, np.int32), np.array(target, np.int32)
        self._sender.launch(self._target, Write(id_, *pages, PageTag(tag), metadata))

    def launch_shuffled(self, id_: int, tag: int) -> None:
        """The whole pool in one write; the target's pages in their order."""
        pages = self._pool.pages
        write = Write(id_, shuffled(pages), np.arange(pages, dtype=np.int32), PageTag(tag))
        self._sender.launch(self._target, write)

    def close_target(self) -> None:
        self._sender.close_target(self._target)


OPENS = frozenset({"open_target", "open_source", "beat", "hear"})
"""Calls that take descriptors."""


def serve(actor: object, sock: socket.socket) -> None:
    """Answer calls until the director hangs up."""
    while True:
        data, fds, _, _ = socket.recv_fds(sock, MOST_BYTES, 4)
        if not data:
            return
        call = msgspec.msgpack.decode(data, type=Call)
        arguments = [*call.arguments, fds] if call.name in OPENS else call.arguments
        answer, given = _answer(actor, call.name, arguments)
        for fd in fds:
            os.close(fd)
        socket.send_fds(sock, [msgspec.msgpack.encode(answer)], given)


def _answer(actor: object, name: str, arguments: list[Any]) -> tuple[Answer, list[int]]:
    try:
        value = getattr(actor, name)(*arguments)
    except Exception as error:
        return Answer(raised=f"{type(error).__name__}: {error}"), []
    return (Answer(value[0]), value[1]) if name == "describe" else (Answer(value), [])
