"""The checks. Each raises Broken with what was seen when the backend does not keep its promise.

A check returns what it observed besides, for people; "" when there is nothing to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from quiesce.errors import PeerUnusable
from quiesce.transport.conformance.closing_checks import (
    a_closed_receiver_s_memory_may_be_used_again,
    after_the_lender_s_close_nothing_is_read,
    after_the_receiver_s_close_no_byte_changes,
)
from quiesce.transport.conformance.expectation import (
    FENCE_S,
    IN_FLIGHT,
    LANDED,
    LARGE_PAGE_BYTES,
    LARGE_PAGES,
    LOOKS,
    QUIESCED,
    SHORT_S,
    Broken,
    Check,
    expect,
    expect_idle,
)
from quiesce.transport.conformance.guard_checks import (
    what_lies_beside_the_pool_stays_as_it_is,
    what_lies_beside_the_reader_s_pool_stays_as_it_is,
)
from quiesce.transport.conformance.lease_checks import what_no_lease_permits_is_not_written
from quiesce.transport.conformance.pull_checks import PULL
from quiesce.transport.conformance.python_checks import (
    python_goes_on_while_pages_are_read,
    python_goes_on_while_pages_are_written,
)
from quiesce.transport.conformance.stage import TAG, Stage, stage

WORDS = [TAG, 5, 3, 12, 2**64 - 1, 0, 0, 0]
MANY_S = 600.0


def bytes_land_where_told_and_nowhere_else(backend: str) -> str:
    with stage(backend) as on:
        source, target, slot = [3, 4, 5, 0, 23], [30, 31, 7, 8, 0], on.slots - 1
        on.arm(target, slot)
        on.launch(1, source, target, [slot, *WORDS])
        ends = on.ends(1)
        expect(ends[0][1] == LANDED, ends)
        expect(all(on.holds(target, 1, source)), "bytes differ from the source")
        expect(on.receiver.call("tags", target) == [TAG] * 5, "tags are missing")
        expect(on.receiver.call("metadata", slot) == WORDS, "metadata differ")
        others = [page for page in on.all_pages() if page not in target]
        expect(set(on.receiver.call("tags", others)) == {0}, "a page was stamped that nobody named")
        zeros = set(on.receiver.call("pages", others))
        expect(len(zeros) == 1, "a page was changed that nobody named")
    return ""


def what_lies_outside_is_refused_whole(backend: str) -> str:
    with stage(backend) as on:
        on.arm(on.all_pages())
        before = on.image()
        wrong = [([32], [0]), ([0, 1], [0, 32]), ([0, -1], [0, 1]), ([0], [-1]), ([0, 1], [0])]
        for id_, (source, target) in enumerate(wrong):
            on.launch(id_, source, target)
        on.launch(90, [0], [0], [on.slots, *WORDS])
        outcomes = on.outcomes(len(wrong) + 1)
        expect(set(outcomes.values()) == {QUIESCED} and len(outcomes) == len(wrong) + 1, outcomes)
        expect(on.image() == before, "something was changed all the same")
    return ""


def one_bad_write_fails_alone(backend: str) -> str:
    with stage(backend) as on:
        on.arm(range(8))
        for id_, page in enumerate((0, 1, 99, 2)):
            on.launch(id_, [page], [page])
        outcomes = on.outcomes(4)
        expect(outcomes == {0: LANDED, 1: LANDED, 2: QUIESCED, 3: LANDED}, outcomes)
        expect(all(on.holds([0, 1, 2], 1, [0, 1, 2])), "a good write did not land")
    return ""


def landed_means_visible(backend: str) -> str:
    with stage(backend) as on:
        on.arm(on.all_pages())
        for round_ in range(LOOKS):
            page = round_ % on.n_pages
            on.launch(round_, [(page + 1) % on.n_pages], [page])
            expect(on.outcomes(1) == {round_: LANDED}, "a write did not land")
            expect(on.holds([page], 1, [(page + 1) % on.n_pages]) == [True], f"page {page} is not there yet")
            expect(on.receiver.call("tags", [page]) == [TAG], "its tag is not there yet")
    return f"{LOOKS} looks"


def every_completion_comes_once(backend: str) -> str:
    with stage(backend) as on:
        on.arm(on.all_pages())
        for id_ in range(100):
            on.launch(id_, [id_ % 40], [id_ % 32])
        ids = [id_ for id_, _, _ in on.ends(100)]
        expect(sorted(ids) == list(range(100)), sorted(ids))
        late = on.writer.call("close")
        expect(late == [], late)
    return "100 writes, some of them bad"


def many_small_pages(backend: str, pages: int = 8192) -> str:
    with stage(backend, page_bytes=512, pages=pages, call_deadline_s=MANY_S) as on:
        on.receiver.call("arm_all", TAG)
        began_s = time.monotonic()
        on.writer.call("launch_shuffled", 1, TAG)
        while not (ends := on.ends(1)):
            pass  # its own deadline ends it
        seconds = time.monotonic() - began_s
        expect(ends[0][1] == LANDED, ends)
        wrong = on.receiver.call("wrongly_shuffled", 1, TAG)
        expect(wrong == 0, f"{wrong} pages hold another page's bytes, or lack their tag")
    return f"{pages} pages of 512 bytes, random order, {seconds:.1f} s"


def an_unknown_end_is_never_called_quiesced(backend: str) -> str:
    """The receiver stands still; a write that its deadline ends may not be called quiesced if bytes come later.

    The source is used again after the failure: only a write whose end is unknown may still read it (no_wild_read).
    """
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=SHORT_S) as on:
        on.arm(on.all_pages())
        on.warm_up()
        on.receiver.stop()
        on.launch(1, on.all_pages(), on.all_pages())
        outcomes = on.outcomes(1)
        expect(1 in outcomes, "the write never ended")
        if outcomes[1] != LANDED:
            on.writer.call("fill", 2)
        on.receiver.go_on()
        on.settled_image()
        rest = on.all_pages()[1:]
        arrived, reused = sum(on.holds(rest, 1, rest)), sum(on.holds(rest, 2, rest))
        expect(outcomes[1] != QUIESCED or arrived == 0, f"{arrived} pages of a write that was called quiesced")
        expect(outcomes[1] == IN_FLIGHT or reused == 0, f"{reused} pages of a source that was used again after the end")
    return f"{outcomes[1]}; of {len(rest)} pages {arrived} arrived, and {reused} of the source as it was used later"


def a_write_to_a_closed_target_is_never_called_quiesced_wrongly(backend: str) -> str:
    """An abort: the receiver stands still, and nobody wants the write under way or the waiting one any more."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=3 * SHORT_S) as on:
        on.arm(on.all_pages())
        on.warm_up()
        on.receiver.stop()
        on.launch(1, on.all_pages(), on.all_pages())
        on.launch(2, [1], [0])
        early = on.outcomes(1, SHORT_S)  # the first one is under way by then
        on.writer.call("close_target")
        outcomes = early | on.outcomes(2 - len(early))
        expect(sorted(outcomes) == [1, 2], outcomes)
        on.receiver.go_on()
        on.settled_image()
        rest = on.all_pages()[1:]
        arrived, waited = sum(on.holds(rest, 1, rest)), on.holds([0], 1, [1])[0]
        expect(outcomes[1] != QUIESCED or arrived == 0, f"{arrived} pages of a write that was called quiesced")
        expect(outcomes[2] != QUIESCED or not waited, "a write that waited landed, and was called quiesced")
    return f"{outcomes[1]}, {outcomes[2]}; of {len(rest)} pages {arrived} arrived"


def a_closed_sender_reads_no_source(backend: str) -> str:
    """source_fence: after `close` nothing that the source holds from then on arrives anywhere."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES) as on:
        on.arm(on.all_pages())
        on.launch(1, on.all_pages(), on.all_pages())
        on.writer.call("close")
        on.writer.call("fill", 2)
        on.receiver.call("revoke", TAG)
        reused = sum(on.holds(on.all_pages(), 2, on.all_pages()))
        expect(reused == 0, f"{reused} pages of the source as it was after close")
    return ""


def a_closed_sender_reads_nothing_for_an_unknown_end(backend: str) -> str:
    """As before, with a receiver that stands still: `close` comes after the deadline and before the bytes' end."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=SHORT_S) as on:
        on.arm(on.all_pages())
        on.warm_up()
        on.receiver.stop()
        on.launch(1, on.all_pages(), on.all_pages())
        outcomes = on.outcomes(1)
        expect(1 in outcomes, "the write never ended")
        on.writer.call("close")
        on.writer.call("fill", 2)
        on.receiver.go_on()
        on.settled_image()
        rest = on.all_pages()[1:]
        reused = sum(on.holds(rest, 2, rest))
        expect(reused == 0, f"{reused} pages of the source as it was after close")
    return outcomes[1]


def a_killed_receiver_hangs_nobody(backend: str) -> str:
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=SHORT_S) as on:
        on.arm(on.all_pages())
        on.warm_up()
        on.launch(1, on.all_pages(), on.all_pages())
        on.receiver.kill()
        on.launch(2, [0], [0])
        outcomes = on.outcomes(2)
        expect(sorted(outcomes) == [1, 2], outcomes)
        on.writer.call("close")
    return ", ".join(outcomes[id_] for id_ in (1, 2))


def an_old_write_never_lands_in_a_later_life(backend: str) -> str:
    """Same host, same port, same address as a rule (it is told): the next life's pool stays as it is."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=3.0) as on:
        on.arm(on.all_pages())
        on.warm_up()
        address = on.receiver.call("address")
        on.receiver.stop()
        on.launch(1, on.all_pages(), on.all_pages())
        on.receiver.kill()
        later = type(on.receiver)("receiver")
        try:
            later.call("open", backend, LARGE_PAGE_BYTES, LARGE_PAGES, on.slots, on.port)
            later.call("arm", TAG, on.all_pages(), 0)
            same = later.call("address") == address
            before = later.call("image")
            on.launch(2, on.all_pages(), on.all_pages())
            outcomes = on.outcomes(2)
            expect(sorted(outcomes) == [1, 2], outcomes)
            expect(later.call("image") == before, "a byte of an earlier life's write is in the later life's pool")
        finally:
            later.close()
    return f"at {'the same' if same else 'another'} address"


def after_a_fence_no_byte_changes(backend: str) -> str:
    """The strongest fence that the backend has, with placements in progress: by lease, else by peer."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=3.0) as on:
        on.arm(on.all_pages())
        on.launch(1, on.all_pages(), on.all_pages())
        on.receiver.call("has_begun", 0, on.n_pages - 1)
        by_lease = on.receiver.call("revoke", TAG)
        if by_lease:
            on.receiver.call("reclaim", TAG)
        else:
            on.receiver.call("kill")
            told = on.receiver.call("await_dead", FENCE_S)
            expect(told == 1, f"the fence was told {told} times")
        image = on.image()
        _write_after_a_fence(on)
        expect(on.stays(image), "bytes changed after the fence")
    return "by lease, at no cost to others" if by_lease else "by the writer's death"


def _write_after_a_fence(on: Stage) -> None:
    """The writer, if it lives, tries again with other bytes."""
    try:
        on.writer.call("fill", 2)
        on.launch(2, on.all_pages(), on.all_pages())
        outcomes = on.outcomes(2)
    except PeerUnusable:
        return  # it was the writer's end
    expect(outcomes.get(2, LANDED) != LANDED, f"a write after the fence: {outcomes}")


def a_dead_writer_s_bytes_end_at_its_fence(backend: str) -> str:
    """The receiver stands still with full queues, the writer is killed and reaped: its death alone proves nothing."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES) as on:
        on.arm(on.all_pages())
        on.warm_up()
        before = on.image()
        on.receiver.call("come_first")  # else what places bytes may be through before anybody could look
        on.receiver.stop()
        on.launch(1, on.all_pages(), on.all_pages())
        on.writer.call("wait", 1, SHORT_S)
        on.writer.kill()
        on.receiver.ask("image_once_dead", FENCE_S)
        on.receiver.go_on()
        (told, image), _ = on.receiver.answer()
        expect(told == 1, f"the fence was told {told} times")
        on.receiver.call("let_others_run", FENCE_S)
        expect(on.stays(image), "bytes changed after the fence was told")
    return "nothing had arrived" if image == before else "bytes had arrived before the fence"


def idle_costs_nothing(backend: str) -> str:
    with stage(backend) as on:
        on.arm([0])
        on.launch(1, [0], [0])
        expect(on.outcomes(1) == {1: LANDED}, "the one write before the rest did not land")

        def rest() -> Callable[[], object]:
            on.writer.ask("wait", 1, SHORT_S)
            return on.writer.answer

        return expect_idle(lambda: float(on.receiver.call("cpu_s") + on.writer.call("cpu_s")), rest)


ALWAYS: tuple[Check, ...] = (
    bytes_land_where_told_and_nowhere_else,
    what_lies_outside_is_refused_whole,
    what_lies_beside_the_pool_stays_as_it_is,
    one_bad_write_fails_alone,
    landed_means_visible,
    every_completion_comes_once,
    many_small_pages,
    a_killed_receiver_hangs_nobody,
    an_old_write_never_lands_in_a_later_life,
    a_closed_receiver_s_memory_may_be_used_again,
    python_goes_on_while_pages_are_written,
    idle_costs_nothing,
)
"""Conditions of entry."""

PROVES: dict[str, tuple[Check, ...]] = {
    "drain_ack": (
        an_unknown_end_is_never_called_quiesced,
        a_write_to_a_closed_target_is_never_called_quiesced_wrongly,
    ),
    "source_fence": (a_closed_sender_reads_no_source, a_closed_sender_reads_nothing_for_an_unknown_end),
    "fence": (after_a_fence_no_byte_changes, a_dead_writer_s_bytes_end_at_its_fence),
    "bounds_checked": (what_lies_outside_is_refused_whole,),
    "lease_bound": (what_no_lease_permits_is_not_written,),
    "close_fence": (after_the_receiver_s_close_no_byte_changes,),
    "pull": (
        *PULL,
        what_lies_beside_the_reader_s_pool_stays_as_it_is,
        python_goes_on_while_pages_are_read,
        after_the_lender_s_close_nothing_is_read,
    ),
}
"""Capability to the checks on which it rests. What no check can see (authenticated, zero_copy) is as declared."""

__all__ = ["ALWAYS", "PROVES", "Broken", "Check"]
