"""A segment for each lease: who writes too late writes into memory that is nobody's, and the kernel takes it back."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from select import select

import numpy as np
import pytest

from quiesce.errors import HandshakeRefused, PeerUnusable
from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.lab.faults import Faults, FaultyPlacement, Hold, LetGo
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion, Metadata, Write
from quiesce.transport.shm import ShmSender
from quiesce.transport.shm_segments import SegmentReceiver
from quiesce.transport.shm_targets import NOTICE, OVER, SegmentTarget

LAYOUT = Layout(layers=1, kv_heads=1, head_dim=4, page_size=128)
PEER = Peer(0, Incarnation("b" * 32))
TAG = PageTag(77)
PAGES = np.arange(3, dtype=np.int32)


class Pair:
    def __init__(self) -> None:
        self.source = Pool.private(LAYOUT, 4)
        self.source.kv[:] = 7.0
        self.faults = Faults(lambda event: None)
        self.sender = ShmSender(self.source, placement=FaultyPlacement(self.faults))
        self.receiver = SegmentReceiver(LAYOUT, 8)
        target = self.sender.open_target(*self.receiver.describe(PEER))
        assert isinstance(target, SegmentTarget)
        self.target = target

    def launch(self, tag: PageTag = TAG, pages: np.ndarray[tuple[int], np.dtype[np.int32]] = PAGES) -> None:
        metadata = Metadata(0, (tag, 1, 2, 3, 4, 5, 6, 7))
        self.sender.launch(self.target, Write(1, PAGES, pages, tag, metadata))

    def end(self) -> Completion:
        select([self.sender.completion_fd], [], [], 30)
        (completion,) = self.sender.completions()
        return completion

    def give_up(self, tag: PageTag = TAG) -> None:
        assert self.receiver.revoke(tag)
        self.receiver.reclaim(tag)

    def close(self) -> None:
        self.faults.order(LetGo())
        self.sender.close()
        self.receiver.close()
        self.source.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_a_write_lands_in_the_segment_of_its_lease(pair: Pair) -> None:
    for tag in (TAG, PageTag(78)):
        pair.receiver.lend(tag, 3, (PEER,))
    pair.launch()
    assert pair.end().outcome is Outcome.LANDED
    landed, other = pair.receiver.segment(TAG), pair.receiver.segment(PageTag(78))
    assert (landed.kv == 7.0).all()
    assert (landed.tags == TAG).all()
    assert landed.metadata[0].tolist() == [TAG, 1, 2, 3, 4, 5, 6, 7]
    assert not other.kv.any()


def test_a_late_write_lands_in_an_orphan(pair: Pair) -> None:
    """Given up while the write is held: its memory is the kernel's again, and what is written later is the writer's."""
    pair.receiver.lend(TAG, 3, (PEER,))
    orphan = os.dup(pair.receiver.segment(TAG).fd)
    pair.faults.order(Hold())
    pair.launch()
    pair.receiver.segment(TAG).kv[:] = 1.0
    assert os.fstat(orphan).st_blocks > 0
    pair.give_up()
    assert os.fstat(orphan).st_blocks == 0
    pair.receiver.lend(PageTag(78), 3, (PEER,))
    pair.faults.order(LetGo())
    assert pair.end().outcome in {Outcome.LANDED, Outcome.FAILED_QUIESCED}
    assert not pair.receiver.segment(PageTag(78)).kv.any()
    assert TAG not in pair.target._segments
    os.close(orphan)


def test_a_write_of_a_lease_that_is_over_does_not_begin(pair: Pair) -> None:
    pair.receiver.lend(TAG, 3, (PEER,))
    pair.give_up()
    pair.launch()
    end = pair.end()
    assert (end.outcome, end.error) == (Outcome.FAILED_QUIESCED, OVER)


def test_a_write_outside_its_segment_is_refused(pair: Pair) -> None:
    pair.receiver.lend(TAG, 3, (PEER,))
    pair.launch(pages=PAGES + 1)
    assert pair.end().outcome is Outcome.FAILED_QUIESCED
    assert not pair.receiver.segment(TAG).kv.any()


def test_what_is_over_is_unmapped_although_nothing_more_is_written(pair: Pair) -> None:
    pair.receiver.lend(TAG, 3, (PEER,))
    pair.launch()
    assert pair.end().outcome is Outcome.LANDED
    pair.receiver.disarm(TAG)
    assert pair.sender.completions() == []
    assert not pair.target._segments


def test_nonsense_on_the_channel_lends_nothing(pair: Pair) -> None:
    """A cut notice, more pages than were described, no memory, memory that could shrink: none of it is mapped."""
    mine = pair.receiver._channels[PEER].mine
    loose = os.memfd_create("loose")
    for notice, fds in (
        (b"x", []),
        (b"x" * 99, []),
        (NOTICE.pack(TAG, 9), [pair.receiver._channels[PEER].theirs.fileno()]),
        (NOTICE.pack(TAG, 3), []),
        (NOTICE.pack(TAG, 3), [loose]),
    ):
        socket.send_fds(mine, [notice], fds)
    os.close(loose)
    pair.launch()
    assert pair.end().error == OVER
    pair.receiver.lend(TAG, 3, (PEER,))
    pair.launch()
    assert pair.end().outcome is Outcome.LANDED


def test_a_peer_that_does_not_listen_is_lent_nothing(pair: Pair) -> None:
    """Its channel fills up. What it could not be told is told when it listens again."""
    number = 1
    with pytest.raises(PeerUnusable, match="cannot be passed"):  # noqa: PT012 - the first that fails is what is looked for
        while number < 100_000:
            pair.receiver.lend(PageTag(number), 1, (PEER,))
            number += 1
    assert PageTag(number) not in pair.receiver._lent
    for tag in range(1, number):
        pair.give_up(PageTag(tag))
    pair.target.tidy()
    pair.receiver.lend(PageTag(number), 3, (PEER,))
    pair.target.tidy()
    assert len(pair.target._segments) == 1


def test_a_stranger_is_lent_nothing(pair: Pair) -> None:
    with pytest.raises(PeerUnusable):
        pair.receiver.lend(TAG, 3, (Peer(0, Incarnation("c" * 32)),))
    assert not pair.receiver._lent
    assert not pair.receiver._over


def test_a_channel_that_is_no_socket_is_refused(pair: Pair) -> None:
    descriptor, _ = pair.receiver.describe(PEER)
    with pytest.raises(HandshakeRefused, match="no socket"):
        pair.sender.open_target(descriptor, [pair.sender.completion_fd])


def test_a_closed_target_unmaps_everything(pair: Pair) -> None:
    pair.receiver.lend(TAG, 3, (PEER,))
    pair.target.tidy()
    pair.sender.close_target(pair.target)
    assert not pair.target._segments
    assert pair.target.enter(TAG) == "the target is closed"
