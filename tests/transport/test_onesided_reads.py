"""Reads by address, with a line that does what it is told: what ends how, and what `close` waits for."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

from quiesce.ids import PageTag
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion
from quiesce.transport.onesided import Line, PoolAddresses, addresses_of
from quiesce.transport.onesided_reads import OneSidedPuller
from quiesce.transport.pulling import Read

from .pools import LAYOUT, SLOTS, TAG
from .test_onesided import MOST_S, Scripted

WINDOW = PageTag(900)


class ClosableLine(Scripted):
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


class ScriptedPuller(OneSidedPuller[PoolAddresses]):
    capabilities, descriptor = Capabilities(drain_ack=True, pull=True), PoolAddresses

    def __init__(self, pool: Pool, line: ClosableLine, call_deadline_s: float) -> None:
        self.line = line
        super().__init__(pool, call_deadline_s=call_deadline_s)

    def _connect(self, described: PoolAddresses) -> Line:
        return self.line


class Joined:
    """A puller with one source, whose pool is only described."""

    def __init__(self, call_deadline_s: float = MOST_S) -> None:
        self.source, self.target = Pool.private(LAYOUT, 4), Pool.private(LAYOUT, 4, SLOTS)
        self.line = ClosableLine()
        self.puller = ScriptedPuller(self.target, self.line, call_deadline_s)
        described = PoolAddresses(LAYOUT, 4, SLOTS, *addresses_of(self.source))
        self.lent = self.puller.open_source(msgspec.msgpack.encode(described), [])

    def launch(self, id_: int, source: list[int], target: list[int]) -> None:
        pages = np.array(source, np.int32), np.array(target, np.int32)
        self.puller.launch(self.lent, Read(id_, pages[0], WINDOW, pages[1], TAG))

    def end(self) -> Completion:
        assert select.select([self.puller.completion_fd], [], [], MOST_S)[0]
        (end,) = self.puller.completions()
        return end


@pytest.fixture
def joined() -> Iterator[Joined]:
    made = Joined()
    yield made
    made.puller.close()


def test_pages_are_copied_from_the_lender_and_stamped_here(joined: Joined) -> None:
    joined.launch(1, [2, 3, 0], [0, 1, 3])
    assert joined.end().outcome is Outcome.LANDED
    theirs, ours, page = joined.source.base_address, joined.target.base_address, LAYOUT.page_bytes
    assert [copies.tolist() for copies in joined.line.copied] == [
        [[theirs + 2 * page, ours, 2 * page], [theirs, ours + 3 * page, page]]
    ]
    assert joined.target.tags.tolist() == [[TAG] * LAYOUT.layer_groups] * 2 + [[0] * LAYOUT.layer_groups] + [
        [TAG] * LAYOUT.layer_groups
    ]


def test_a_read_of_no_pages_lands_without_asking(joined: Joined) -> None:
    joined.launch(1, [], [])
    assert joined.end().outcome is Outcome.LANDED
    assert joined.line.copied == []


@pytest.mark.parametrize(("source", "target"), [([4], [0]), ([0], [4]), ([-1], [0]), ([0, 1], [0])])
def test_what_lies_outside_is_never_begun(joined: Joined, source: list[int], target: list[int]) -> None:
    joined.launch(1, source, target)
    assert joined.end().outcome is Outcome.FAILED_QUIESCED
    assert joined.line.copied == []


def test_a_read_that_did_not_end_is_unknown_and_not_stamped(joined: Joined) -> None:
    joined.line.on_copy = lambda wanted: "not done in time"
    joined.launch(1, [0], [0])
    end = joined.end()
    assert (end.outcome, end.error) == (Outcome.FAILED_IN_FLIGHT, "not done in time")
    assert joined.line.closed == 0, "what is under way is kept"
    assert not joined.target.tags.any()


def test_a_read_whose_connection_broke_is_quiesced_once_its_line_is_closed(joined: Joined) -> None:
    def breaks(wanted: Callable[[], bool]) -> str:
        joined.line.broken = "the connection broke"
        return joined.line.broken

    joined.line.on_copy = breaks
    joined.launch(1, [0], [0])
    assert joined.end().outcome is Outcome.FAILED_QUIESCED
    assert joined.line.closed == 1
    joined.launch(2, [0], [0])
    assert joined.end().outcome is Outcome.FAILED_QUIESCED
    assert len(joined.line.copied) == 1, "nothing begins on a line that broke"


def test_close_waits_for_no_read_and_closes_its_line() -> None:
    made, began = Joined(), threading.Event()

    def never_ends(wanted: Callable[[], bool]) -> str:
        began.set()
        while wanted():
            pass
        return "not done in time"

    made.line.on_copy = never_ends
    made.launch(1, [0], [0])
    assert began.wait(MOST_S)
    made.puller.close()
    assert [end.outcome for end in made.puller.completions()] == [Outcome.FAILED_IN_FLIGHT]
    assert made.line.closed == 1
