from __future__ import annotations

import select
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.errors import UsageError
from quiesce.ids import PageTag
from quiesce.kv.layout import Layout
from quiesce.kv.runs import CopyRuns
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Metadata, Write
from quiesce.transport.placement import Placement, Placing
from quiesce.transport.shm import ShmReceiver, ShmSender

from .placements import LONG_S, Broken, Held, HeldBeforeTags
from .pools import ANYBODY, SLOTS, SOURCE_PAGES, TAG, TARGET_PAGES, Pair, whole_pool

SHORT_S = 0.2  # long enough for a busy machine to start a thread, or the write never runs
WORDS = (int(TAG), 5, 3, 12, 2**64 - 1, 0, 0, 0)


def test_bytes_go_where_they_are_told_and_nowhere_else() -> None:
    with Pair() as made:
        source, target = [3, 4, 5, 0, 23], [30, 31, 7, 8, 0]
        made.launch(1, source, target, Metadata(2, WORDS))
        (completion,) = made.wait()
        assert completion.id == 1
        assert completion.outcome is Outcome.LANDED
        assert completion.n_bytes == 5 * made.source.layout.page_bytes
        assert made.arrived(source, target)
        assert made.stamped() == sorted(target)
        assert made.target.metadata.tolist() == [[0] * 8, [0] * 8, list(WORDS), [0] * 8]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_any_batch_of_disjoint_writes_lands_as_a_numpy_copy_would(data: st.DataObject, threads: int) -> None:
    targets = data.draw(st.lists(st.integers(0, TARGET_PAGES - 1), unique=True))
    sources = [data.draw(st.integers(0, SOURCE_PAGES - 1)) for _ in targets]
    cut = data.draw(st.integers(0, len(targets)))
    with Pair(threads=threads) as made:
        made.launch(1, sources[:cut], targets[:cut])
        made.launch(2, sources[cut:], targets[cut:])
        assert {(end.id, end.outcome) for end in made.wait(2)} == {(1, Outcome.LANDED), (2, Outcome.LANDED)}
        assert made.arrived(sources, targets)
        assert made.stamped() == sorted(targets)


def test_a_launch_returns_while_nothing_has_moved_yet() -> None:
    placement = Held()
    with Pair(placement) as made:
        made.launch(1, [0], [0])
        made.launch(2, [1], [1])
        assert placement.reached.wait(LONG_S)
        assert made.sender.completions() == []
        assert made.arrived([], [])
        placement.let_go.set()
        assert [end.id for end in made.wait(2)] == [1, 2]
        assert made.arrived([0, 1], [0, 1])


def test_tags_come_after_all_bytes_and_metadata_after_all_tags() -> None:
    seen: list[tuple[bool, list[int], int]] = []

    class Watching(Placement):
        def copy(self, placing: Placing, runs: CopyRuns) -> None:
            self.look()
            super().copy(placing, runs)

        def stamp(self, placing: Placing) -> None:
            self.look()
            super().stamp(placing)

        def write_metadata(self, placing: Placing) -> None:
            self.look()
            super().write_metadata(placing)

        def look(self) -> None:
            seen.append((made.arrived([1, 9], [2, 3]), made.stamped(), int(made.target.metadata[0, 0])))

    with Pair(Watching()) as made:
        made.launch(1, [1, 9], [2, 3], Metadata(0, WORDS))
        made.wait()
        assert seen == [(False, [], 0), (True, [], 0), (True, [2, 3], 0)]
        assert made.target.metadata[0, 0] == TAG


def test_a_write_without_metadata_leaves_all_slots_alone() -> None:
    with Pair() as made:
        made.launch(1, [1], [1])
        made.wait()
        assert not made.target.metadata.any()


def test_a_write_of_no_pages_may_carry_metadata() -> None:
    with Pair() as made:
        made.launch(1, [], [], Metadata(3, WORDS))
        (completion,) = made.wait()
        assert (completion.outcome, completion.n_bytes) == (Outcome.LANDED, 0)
        assert tuple(made.target.metadata[3].tolist()) == WORDS


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([SOURCE_PAGES], [0]),
        ([0, -1], [0, 1]),
        ([0, 1], [0, TARGET_PAGES]),
        ([0, 1], [-1, 0]),
        ([0], [2**31 - 1]),
        ([0, 1], [0]),
        ([0], []),
    ],
)
def test_pages_outside_a_pool_are_refused_before_anything_moves(source: list[int], target: list[int]) -> None:
    with Pair() as made:
        made.launch(1, source, target)
        (completion,) = made.wait()
        assert completion.outcome is Outcome.FAILED_QUIESCED
        assert "page" in completion.error
        assert made.arrived([], [])
        assert made.stamped() == []


@pytest.mark.parametrize(
    "metadata",
    [Metadata(SLOTS, WORDS), Metadata(-1, WORDS), Metadata(0, WORDS[:7]), Metadata(0, (*WORDS[:7], 2**64))],
)
def test_metadata_that_cannot_be_is_refused_before_anything_moves(metadata: Metadata) -> None:
    with Pair() as made:
        made.launch(1, [1], [1], metadata)
        (completion,) = made.wait()
        assert completion.outcome is Outcome.FAILED_QUIESCED
        assert "metadata" in completion.error
        assert made.arrived([], [])


@pytest.mark.parametrize("tag", [0, -1, 2**64])
def test_a_number_that_is_no_tag_is_refused(tag: int) -> None:
    with Pair() as made:
        made.sender.launch(made.lent, Write(1, np.array([1]), np.array([1]), PageTag(tag)))
        assert made.wait()[0].outcome is Outcome.FAILED_QUIESCED
        assert made.arrived([], [])


@pytest.mark.parametrize(
    ("at", "outcome"),
    [
        ("bytes", Outcome.FAILED_QUIESCED),
        ("torn", Outcome.FAILED_IN_FLIGHT),
        ("tags", Outcome.FAILED_IN_FLIGHT),
    ],
)
def test_an_error_is_told_truly_and_the_thread_goes_on(at: str, outcome: Outcome) -> None:
    placement = Broken(at)
    with Pair(placement) as made:
        made.launch(1, [1, 3], [1, 2])
        (completion,) = made.wait()
        assert completion.outcome is outcome
        assert "RuntimeError" in completion.error
        assert made.stamped() == []
        placement.at = "never"
        made.launch(2, [5], [6])
        assert made.wait()[0].outcome is Outcome.LANDED


def test_a_batch_of_failures_is_told_once_each_with_one_wake_up() -> None:
    placement = Held()
    with Pair(placement) as made:
        made.launch(0, [0], [0])
        assert placement.reached.wait(LONG_S)
        for number in range(1, 1001):
            made.launch(number, [SOURCE_PAGES], [0])
        placement.let_go.set()
        ends = made.wait(1001)
        assert [end.id for end in ends] == list(range(1001))
        assert {end.outcome for end in ends[1:]} == {Outcome.FAILED_QUIESCED}
        assert not select.select([made.sender.completion_fd], [], [], 0)[0]
        assert made.sender.completions() == []


def test_a_running_write_past_its_deadline_is_in_flight_once_and_may_land_late() -> None:
    placement = Held()
    with Pair(placement, call_deadline_s=SHORT_S) as made:
        made.launch(1, [1], [1])
        (completion,) = made.wait()
        assert completion.outcome is Outcome.FAILED_IN_FLIGHT
        assert completion.seconds >= SHORT_S
        assert made.arrived([], [])
        placement.let_go.set()
        made.sender.close()
        assert made.arrived([1], [1]), "the late landing must be observable, or no test of its danger means anything"
        assert made.sender.completions() == []
        assert made.sender.late_landings == 1


def test_a_late_landing_can_be_held_between_bytes_and_tags() -> None:
    placement = HeldBeforeTags()
    with Pair(placement, call_deadline_s=SHORT_S) as made:
        made.launch(1, [1], [1])
        assert made.wait()[0].outcome is Outcome.FAILED_IN_FLIGHT
        assert placement.reached.wait(LONG_S)
        assert made.arrived([1], [1])
        assert made.stamped() == []
        placement.let_go.set()


def test_a_write_that_waited_past_its_deadline_never_begins() -> None:
    placement = Held()
    with Pair(placement, call_deadline_s=SHORT_S) as made:
        made.launch(1, [1], [1])
        assert placement.reached.wait(LONG_S)
        made.launch(2, [2], [2])
        assert {end.id: end.outcome for end in made.wait(2)} == {
            1: Outcome.FAILED_IN_FLIGHT,
            2: Outcome.FAILED_QUIESCED,
        }
        placement.let_go.set()
        made.launch(3, [3], [3])
        assert [(end.id, end.outcome) for end in made.wait()] == [(3, Outcome.LANDED)]
        made.sender.close()
        assert made.sender.completions() == []
        assert made.sender.late_landings == 1
        assert made.arrived([1, 3], [1, 3])


def test_close_waits_for_a_running_copy_and_ends_waiting_writes() -> None:
    placement = Held()
    with Pair(placement) as made:
        made.launch(1, [1], [1])
        made.launch(2, [2], [2])
        assert placement.reached.wait(LONG_S)
        closing = threading.Thread(target=made.sender.close)
        closing.start()
        assert [(end.id, end.outcome) for end in made.wait()] == [(2, Outcome.FAILED_QUIESCED)]
        assert closing.is_alive(), "close must not return while a source page is read"
        placement.let_go.set()
        closing.join(LONG_S)
        assert [(end.id, end.outcome) for end in made.sender.completions()] == [(1, Outcome.LANDED)]
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("transfer")]
        made.launch(3, [3], [3])
        assert [(end.id, end.outcome) for end in made.sender.completions()] == [(3, Outcome.FAILED_QUIESCED)]
        assert made.arrived([1], [1])
        assert made.sender.completion_fd == -1


def test_a_closed_target_gets_nothing_more_and_a_running_copy_ends_by_itself() -> None:
    placement = Held()
    with Pair(placement) as made:
        made.launch(1, [1], [1])
        made.launch(2, [2], [2])
        assert placement.reached.wait(LONG_S)
        made.sender.close_target(made.lent)
        made.sender.close_target(made.lent)
        assert [(end.id, end.outcome) for end in made.wait()] == [(2, Outcome.FAILED_QUIESCED)]
        assert made.lent.pool.kv.shape[0] == TARGET_PAGES, "the mapping stays while a copy runs"
        placement.let_go.set()
        assert [(end.id, end.outcome) for end in made.wait()] == [(1, Outcome.LANDED)]
        made.launch(3, [3], [3])
        assert made.wait()[0].outcome is Outcome.FAILED_QUIESCED
        assert made.arrived([1], [1])
        assert made.lent.pool.kv.shape[0] == 0


def test_an_idle_target_is_unmapped_at_once() -> None:
    with Pair() as made:
        made.sender.close_target(made.lent)
        assert made.lent.pool.kv.shape[0] == 0


def test_one_sender_serves_several_receivers() -> None:
    with Pair() as made:
        other = Pool.shared(made.source.layout, 5, 1)
        descriptor, fds = ShmReceiver(other).describe(ANYBODY)
        lent = made.sender.open_target(descriptor, fds)
        made.sender.launch(lent, Write(9, np.array([2]), np.array([4]), TAG))
        assert made.wait()[0].outcome is Outcome.LANDED
        assert np.array_equal(other.page_view()[4], made.source.page_view()[2])
        assert made.arrived([], [])
        made.sender.close_target(lent)
        other.close()


def test_only_targets_of_its_own_kind_are_taken() -> None:
    class Stranger:
        pages = 3

    with Pair() as made, pytest.raises(UsageError):
        made.sender.launch(Stranger(), Write(1, np.array([1]), np.array([1]), TAG))


def test_a_copy_lets_other_threads_run() -> None:
    """A thread of this interpreter sees one memmove half done; if memmove kept the GIL, no thread ever could."""
    assert any(_saw_half_a_copy() for _ in range(10))


def _saw_half_a_copy() -> bool:
    layout = Layout(layers=32, kv_heads=8, head_dim=128, page_size=16)
    source, target = Pool.private(layout, 32), Pool.shared(layout, 32, 0)
    source.page_view()[[0, -1]] = 1
    sender = ShmSender(source)
    lent = whole_pool(sender.open_target(*ShmReceiver(target).describe(ANYBODY)))
    everything = np.arange(32, dtype=np.int32)
    sender.launch(lent, Write(1, everything, everything, TAG))  # one run of 128 MiB, so one call of memmove
    first, last, saw = target.page_view()[0, 999:1000], target.page_view()[-1, -999:-998], False
    while not sender.completions():
        # what is read first has arrived and what is read after it has not; memmove may go either way
        saw = saw or bool(first[0] and not last[0]) or bool(last[0] and not first[0])
    assert first[0]
    assert last[0]
    sender.close()
    source.close()
    target.close()
    return saw


def test_steady_traffic_keeps_no_memory_of_ended_writes() -> None:
    with Pair() as made:
        for number in range(500):
            made.launch(number, [number % SOURCE_PAGES], [number % TARGET_PAGES])
            made.wait()
        _ends_exactly_once(made)
        assert len(made.sender._flights._deadlines) <= 1


def _ends_exactly_once(made: Pair) -> None:
    assert made.sender.completions() == []
    assert made.sender.late_landings == 0
