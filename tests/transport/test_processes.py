"""The same-host transport between real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quiesce.ids import Incarnation, Peer
from quiesce.kv.storage import Pool
from quiesce.transport.shm import ShmReceiver

from .pools import GUARD, LAYOUT, SLOTS, TARGET_PAGES

PEER = Peer(0, Incarnation("a" * 32))
WRITER_SAYS_S = 30.0


class Lent:
    """A target pool full of guard bytes, its receiver, and a writer process."""

    def __init__(self) -> None:
        self.pool = Pool.shared(LAYOUT, TARGET_PAGES, SLOTS)
        self.pool.page_view()[...] = GUARD
        self.receiver = ShmReceiver(self.pool)
        self.writer: subprocess.Popen[str] | None = None

    def start(self, mode: str) -> subprocess.Popen[str]:
        descriptor, (fd,) = self.receiver.describe(PEER)
        self.writer = subprocess.Popen(
            [sys.executable, "-m", "transport.writer", str(fd), descriptor.hex(), mode],
            cwd=Path(__file__).parent.parent,
            pass_fds=[fd],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self.writer

    def says(self, word: str) -> None:
        assert self.writer is not None
        assert self.writer.stdout is not None
        assert self.writer.stdout.readline().strip() == word

    def watch(self) -> asyncio.Future[Peer]:
        """A future that ends when the writer is known dead; a second call of `on_dead` would raise."""
        assert self.writer is not None
        loop = asyncio.get_running_loop()
        dead: asyncio.Future[Peer] = loop.create_future()
        self.receiver.watch(PEER, os.pidfd_open(self.writer.pid), dead.set_result, loop)
        return dead

    def stop(self) -> None:
        """SIGSTOP the writer and wait until it has stopped."""
        assert self.writer is not None
        self.writer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.writer.pid, os.WSTOPPED)

    def image(self) -> bytes:
        return self.pool.page_view().tobytes() + self.pool.tags.tobytes() + self.pool.metadata.tobytes()

    def wait_for_change(self) -> None:
        before = self.image()
        while self.image() == before:
            os.sched_yield()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.kill()
            with self.writer:
                pass
        self.receiver.close()
        self.pool.close()


@pytest.fixture
def lent() -> Iterator[Lent]:
    made = Lent()
    yield made
    made.close()


def test_another_process_writes_where_it_is_told_and_nowhere_else(lent: Lent) -> None:
    lent.start("once")
    lent.says("landed")
    expected = np.full_like(lent.pool.page_view(), GUARD)
    expected[4:8] = 0x5A
    assert np.array_equal(lent.pool.page_view(), expected)
    assert np.flatnonzero((lent.pool.tags == 77).all(axis=1)).tolist() == [4, 5, 6, 7]
    assert lent.writer is not None
    assert lent.writer.wait(WRITER_SAYS_S) == 0


async def test_after_a_killed_writer_s_pidfd_not_one_byte_changes(lent: Lent) -> None:
    lent.start("endless")
    lent.says("running")
    dead = lent.watch()
    lent.wait_for_change()
    assert not lent.receiver.is_dead(PEER)
    lent.receiver.kill(PEER)
    assert await asyncio.wait_for(dead, WRITER_SAYS_S) == PEER
    image = lent.image()
    assert lent.receiver.is_dead(PEER)
    for _ in range(200):
        os.sched_yield()
        assert lent.image() == image
    lent.receiver.kill(PEER)  # nothing happens


async def test_a_write_held_in_a_killed_process_never_lands(lent: Lent) -> None:
    writer = lent.start("held")
    lent.says("held")
    dead = lent.watch()
    writer.kill()
    await asyncio.wait_for(dead, WRITER_SAYS_S)
    assert (lent.pool.page_view() == GUARD).all()
    assert not lent.pool.tags.any()


async def test_a_write_held_in_another_process_lands_late(lent: Lent) -> None:
    writer = lent.start("held")
    lent.says("held")
    assert (lent.pool.page_view() == GUARD).all()
    assert writer.stdin is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()
    lent.says("landed")
    assert (lent.pool.page_view()[4:8] == 0x5A).all()


async def test_a_stopped_writer_is_not_dead_and_goes_on_writing(lent: Lent) -> None:
    writer = lent.start("endless")
    lent.says("running")
    dead = lent.watch()
    lent.stop()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not dead.done()
    assert not lent.receiver.is_dead(PEER)
    writer.send_signal(signal.SIGCONT)
    lent.wait_for_change()
    lent.receiver.kill(PEER)
    await asyncio.wait_for(dead, WRITER_SAYS_S)


async def test_a_stopped_writer_can_be_fenced(lent: Lent) -> None:
    lent.start("endless")
    lent.says("running")
    dead = lent.watch()
    lent.stop()
    lent.receiver.kill(PEER)
    assert await asyncio.wait_for(dead, WRITER_SAYS_S) == PEER


async def test_a_writer_that_ends_by_itself_is_dead_too(lent: Lent) -> None:
    lent.start("once")
    dead = lent.watch()
    lent.says("landed")
    assert await asyncio.wait_for(dead, WRITER_SAYS_S) == PEER
