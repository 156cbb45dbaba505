"""Writes by address, with a line that does what it is told: what ends how, and what is never begun."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

from quiesce.errors import MachineLacksError
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion, Metadata, Write
from quiesce.transport.nixl.library import device_towards
from quiesce.transport.onesided import Copies, Line, OneSidedSender, PoolAddresses, addresses_of

from .pools import LAYOUT, SLOTS, TAG

WORDS = (int(TAG), 5, 3, 12, 2**64 - 1, 0, 0, 0)
MOST_S = 30.0


class Scripted(Line):
    """`on_copy` is asked in place of a library; `copied` is what it was asked for."""

    def __init__(self) -> None:
        self.copied: list[Copies] = []
        self.on_copy: Callable[[Callable[[], bool]], str] = lambda wanted: ""
        self.kept_s: float | None = None
        self.tended = threading.Semaphore(0)
        self.lent = 0

    def lend(self, staging: object) -> None:
        self.lent += 1

    def take_back(self, staging: object) -> None:
        self.lent -= 1

    def copy(self, copies: Copies, wanted: Callable[[], bool]) -> str:
        self.copied.append(copies)
        return self.on_copy(wanted)

    def tend(self) -> float | None:
        self.tended.release()
        return self.kept_s


class ScriptedSender(OneSidedSender[PoolAddresses]):
    capabilities, descriptor = Capabilities(drain_ack=True), PoolAddresses

    def __init__(self, pool: Pool, line: Scripted) -> None:
        self.line: Scripted | None = line
        super().__init__(pool)

    def _connect(self, described: PoolAddresses) -> Line:
        if self.line is None:
            raise MachineLacksError("no device leads there")
        return self.line


class Joined:
    """A sender with one target, whose pool is only described."""

    def __init__(self, line: Scripted | None = None) -> None:
        self.source, self.target = Pool.private(LAYOUT, 4), Pool.private(LAYOUT, 4, SLOTS)
        self.line = line or Scripted()
        self.sender = ScriptedSender(self.source, self.line)

    def open(self) -> None:
        self.described = PoolAddresses(LAYOUT, 4, SLOTS, *addresses_of(self.target))
        self.lent = self.sender.open_target(msgspec.msgpack.encode(self.described), [])

    def write(self, id_: int, *pages: int) -> Completion:
        both = np.array(pages, np.int32)
        self.sender.launch(self.lent, Write(id_, both, both, TAG, Metadata(1, WORDS)))
        assert select.select([self.sender.completion_fd], [], [], MOST_S)[0]
        (end,) = self.sender.completions()
        return end


@pytest.fixture
def joined() -> Iterator[Joined]:
    made = Joined()
    made.open()
    yield made
    made.sender.close()


def test_bytes_then_tags_then_words_then_the_first_word(joined: Joined) -> None:
    assert joined.write(1, 0, 1, 3).outcome is Outcome.LANDED
    kv, tags, metadata = addresses_of(joined.target)
    page, row = LAYOUT.page_bytes, LAYOUT.layer_groups * 8
    where = [[(target, n_bytes) for _, target, n_bytes in copies.tolist()] for copies in joined.line.copied]
    assert where == [
        [(kv, 2 * page), (kv + 3 * page, page)],
        [(tags, 2 * row), (tags + 3 * row, row)],
        [(metadata + 64 + 8, 56)],
        [(metadata + 64, 8)],
    ]
    assert joined.line.lent == 0


def test_tags_are_as_few_copies_as_their_pages_lie_in_whatever_their_order(joined: Joined) -> None:
    assert joined.write(1, 3, 1, 0).outcome is Outcome.LANDED
    _, tags, _ = addresses_of(joined.target)
    row = LAYOUT.layer_groups * 8
    pages, stamps = joined.line.copied[:2]
    assert len(pages) == 3
    assert stamps[:, 1:].tolist() == [[tags, 2 * row], [tags + 3 * row, row]]


@pytest.mark.parametrize("fails_at", range(4))
def test_after_a_failure_nothing_more_is_begun_and_its_end_is_unknown(joined: Joined, fails_at: int) -> None:
    joined.line.on_copy = lambda wanted: "it broke" if len(joined.line.copied) > fails_at else ""
    end = joined.write(1, 0)
    assert (end.outcome, end.error) == (Outcome.FAILED_IN_FLIGHT, "it broke")
    assert len(joined.line.copied) == fails_at + 1
    assert joined.line.lent == 1, "who may still read it has not given it back"


def test_what_a_library_raises_leaves_the_end_unknown(joined: Joined) -> None:
    def raise_it(wanted: Callable[[], bool]) -> str:
        raise RuntimeError("whatever")

    joined.line.on_copy = raise_it
    assert joined.write(1, 0).outcome is Outcome.FAILED_IN_FLIGHT
    joined.line.on_copy = lambda wanted: ""
    assert joined.write(2, 0).outcome is Outcome.LANDED, "the lane goes on"


def test_what_nobody_foresaw_fails_one_write_and_the_lane_goes_on(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_it(*_: object) -> list[Copies]:
        raise RuntimeError("whatever")

    with monkeypatch.context() as patched:
        patched.setattr(ScriptedSender, "_steps", raise_it)
        assert joined.write(1, 0).outcome is Outcome.FAILED_IN_FLIGHT
    assert joined.write(2, 0).outcome is Outcome.LANDED


def test_nothing_begins_on_a_line_that_broke(joined: Joined) -> None:
    joined.line.broken = "the peer is gone"
    end = joined.write(1, 0)
    assert (end.outcome, end.error) == (Outcome.FAILED_QUIESCED, "the peer is gone")
    assert joined.line.copied == []


def test_without_a_line_every_write_says_why() -> None:
    made = Joined()
    made.sender.line = None
    made.open()
    for id_ in range(2):
        end = made.write(id_, 0)
        assert (end.outcome, end.error) == (Outcome.FAILED_QUIESCED, "no device leads there")
    made.sender.close()


def test_a_write_whose_time_is_over_stamps_nothing() -> None:
    made = Joined()
    made.open()
    wanted_before_and_after: list[bool] = []

    def outlive_the_deadline(wanted: Callable[[], bool]) -> str:
        flights = made.sender._flights
        wanted_before_and_after.append(wanted())
        with flights._lock:
            flights._expire(flights._deadlines[0])
        wanted_before_and_after.append(wanted())
        return "not done in time"

    made.line.on_copy = outlive_the_deadline
    assert made.write(1, 0).outcome is Outcome.FAILED_IN_FLIGHT
    made.sender.close()
    assert wanted_before_and_after == [True, False]
    assert len(made.line.copied) == 1
    assert made.sender.late_landings == 1


def test_what_never_ended_is_looked_at_again_and_again() -> None:
    line = Scripted()
    line.kept_s = 0.001
    made = Joined(line)
    made.open()
    for _ in range(5):
        assert line.tended.acquire(timeout=MOST_S)
    made.sender.close()


def test_a_device_leads_to_a_host() -> None:
    assert device_towards("127.0.0.1") == "lo"
    with pytest.raises(MachineLacksError, match="leads to ::1"):
        device_towards("::1")
