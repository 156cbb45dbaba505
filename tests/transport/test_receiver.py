from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.errors import HandshakeRefused, PeerUnusable, UsageError
from quiesce.ids import Incarnation, Peer
from quiesce.kv.storage import Pool
from quiesce.transport.shm import ShmDescriptor, ShmReceiver, ShmSender, encode_descriptor

from .pools import LAYOUT, SLOTS, TARGET_PAGES, whole_pool

PEER = Peer(0, Incarnation("a" * 32))
STRANGER = Peer(0, Incarnation("b" * 32))
SOON_S = 30.0


@pytest.fixture
def pool() -> Iterator[Pool]:
    shared = Pool.shared(LAYOUT, TARGET_PAGES, SLOTS)
    yield shared
    shared.close()


@pytest.fixture
def sender() -> Iterator[ShmSender]:
    source = Pool.private(LAYOUT, 2)
    made = ShmSender(source)
    yield made
    made.close()
    source.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        yield child
        child.kill()


def changed(pool: Pool, **fields: object) -> bytes:
    described = msgspec.msgpack.decode(encode_descriptor(pool), type=ShmDescriptor)
    return msgspec.msgpack.encode(msgspec.to_builtins(described) | fields)


def test_a_described_pool_can_be_opened_and_the_caller_s_fd_closed(pool: Pool, sender: ShmSender) -> None:
    descriptor, (fd,) = ShmReceiver(pool).describe(PEER)
    copy = os.dup(fd)
    target = whole_pool(sender.open_target(descriptor, [copy]))
    os.close(copy)
    assert target.pages == TARGET_PAGES
    target.pool.kv[3] = 8
    assert (pool.kv[3] == 8).all()


def test_every_life_of_a_pool_has_another_nonce(pool: Pool, sender: ShmSender) -> None:
    nonces = {whole_pool(sender.open_target(*ShmReceiver(pool).describe(PEER))).nonce for _ in range(3)}
    assert len(nonces) == 3


def test_a_receiver_needs_memory_that_can_be_shared() -> None:
    private = Pool.private(LAYOUT, 2)
    with pytest.raises(UsageError):
        ShmReceiver(private)
    private.close()


@pytest.mark.parametrize(
    "lie",
    [
        {"pages": 0},
        {"pages": -1},
        {"pages": TARGET_PAGES * 1000},
        {"pages": 2**40},
        {"pages": 2**63},
        {"slots": -1},
        {"slots": 2**50},
        {"layout": {"layers": 2, "kv_heads": 1, "head_dim": 16, "page_size": 4, "layer_groups": 2}},
        {"layout": {"layers": 2**63, "kv_heads": 1, "head_dim": 16, "page_size": 4}},
        {"layout": {"layers": 2, "kv_heads": 1, "head_dim": 8, "page_size": 4}},
        {"layout": None},
        {"nonce": 5},
        {"more": 1},
    ],
)
def test_a_lying_descriptor_is_refused(pool: Pool, sender: ShmSender, lie: dict[str, object]) -> None:
    with pytest.raises(HandshakeRefused):
        sender.open_target(changed(pool, **lie), [pool.fd])


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_descriptors_is_refused(pool: Pool, sender: ShmSender, count: int) -> None:
    with pytest.raises(HandshakeRefused, match="passes 1 file descriptors"):
        sender.open_target(encode_descriptor(pool), [pool.fd] * count)


def test_a_long_descriptor_is_refused_unread(pool: Pool, sender: ShmSender) -> None:
    with pytest.raises(HandshakeRefused, match="too long"):
        sender.open_target(changed(pool, nonce="x" * 5000), [pool.fd])


@given(st.binary(max_size=80))
def test_hostile_bytes_are_refused(descriptor: bytes) -> None:
    source = Pool.private(LAYOUT, 2)
    sender = ShmSender(source)
    with pytest.raises(HandshakeRefused):
        sender.open_target(descriptor, [0])
    sender.close()
    source.close()


async def test_a_death_is_told_once_and_remembered(pool: Pool, sleeper: subprocess.Popen[bytes]) -> None:
    receiver, loop = ShmReceiver(pool), asyncio.get_running_loop()
    told: asyncio.Queue[Peer] = asyncio.Queue()
    receiver.watch(PEER, os.pidfd_open(sleeper.pid), told.put_nowait, loop)
    assert not receiver.is_dead(PEER)
    sleeper.kill()
    assert await asyncio.wait_for(told.get(), SOON_S) == PEER
    assert receiver.is_dead(PEER)
    assert not receiver.is_dead(STRANGER)
    receiver.watch(PEER, os.pidfd_open(os.getpid()), told.put_nowait, loop)  # dead is dead, whoever comes now
    assert await asyncio.wait_for(told.get(), SOON_S) == PEER
    assert told.empty()
    receiver.close()


async def test_a_peer_that_comes_again_is_watched_once(pool: Pool, sleeper: subprocess.Popen[bytes]) -> None:
    receiver, loop = ShmReceiver(pool), asyncio.get_running_loop()
    told: asyncio.Queue[str] = asyncio.Queue()
    receiver.watch(PEER, os.pidfd_open(sleeper.pid), lambda _: told.put_nowait("first"), loop)
    receiver.watch(PEER, os.pidfd_open(sleeper.pid), lambda _: told.put_nowait("second"), loop)
    receiver.kill(PEER)
    assert await asyncio.wait_for(told.get(), SOON_S) == "second"
    assert told.empty()
    receiver.close()


async def test_a_closed_receiver_tells_nothing_and_keeps_no_descriptor(
    pool: Pool, sleeper: subprocess.Popen[bytes]
) -> None:
    receiver = ShmReceiver(pool)
    pidfd = os.pidfd_open(sleeper.pid)
    receiver.watch(PEER, pidfd, lambda _: pytest.fail("told"), asyncio.get_running_loop())
    receiver.close()
    receiver.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pidfd)
    sleeper.kill()
    sleeper.wait(SOON_S)
    await asyncio.sleep(0)
    assert pool.fd >= 0


async def test_who_is_reaped_already_can_be_killed_again(pool: Pool, sleeper: subprocess.Popen[bytes]) -> None:
    receiver = ShmReceiver(pool)
    receiver.watch(PEER, os.pidfd_open(sleeper.pid), lambda _: None, asyncio.get_running_loop())
    sleeper.kill()
    sleeper.wait(SOON_S)
    assert receiver.is_dead(PEER), "the pidfd knows before the loop ran"
    receiver.kill(PEER)
    receiver.close()


async def test_who_is_not_watched_cannot_be_killed(pool: Pool) -> None:
    with pytest.raises(PeerUnusable, match="not watched"):
        ShmReceiver(pool).kill(STRANGER)


def test_a_fresh_target_is_untouched_by_being_opened(pool: Pool, sender: ShmSender) -> None:
    sender.open_target(*ShmReceiver(pool).describe(PEER))
    assert not np.any(pool.kv)
    assert not np.any(pool.tags)
