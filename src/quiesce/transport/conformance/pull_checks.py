"""The checks of pull: what decode reads arrives as it was lent, or its end is told truly; see `checks`.

That the source was used again shows in its filling: the lender's pool holds pattern 1 at first, 2 or 3 later.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from quiesce.errors import PeerUnusable
from quiesce.transport.conformance.expectation import (
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
from quiesce.transport.conformance.pull_stage import WINDOW, PullStage, pull_stage
from quiesce.transport.conformance.stage import TAG, Actor

ROUNDS = 4
UNDER_WAY_S = 0.004
"""A large read has begun by then, and is far from its end."""
SOON_S = 10.0
"""What does not come by then never does: the end of a read whose time is over, a death, the end of `close`."""


def what_is_read_comes_where_told_and_nowhere_else(backend: str) -> str:
    with pull_stage(backend) as on:
        source, target = [3, 4, 5, 0, 23], [30, 31, 7, 8, 0]
        on.lend(source)
        on.launch(1, source, target)
        ends = on.ends(1)
        expect(ends[0][1] == LANDED, ends)
        expect(all(on.holds(target, 1, source)), "bytes differ from the source")
        expect(on.puller.call("tags", target) == [TAG] * 5, "tags are missing")
        others = [page for page in on.all_pages() if page not in target]
        expect(set(on.puller.call("tags", others)) == {0}, "a page was stamped that nobody named")
        expect(len(set(on.puller.call("pages", others))) == 1, "a page was changed that nobody named")
    return ""


def a_read_outside_is_refused_whole(backend: str) -> str:
    """Outside either pool; the reads between them land, and each ends once."""
    with pull_stage(backend) as on:
        on.lend(on.all_pages())
        wrong = [([32], [0]), ([0, 1], [0, 32]), ([0, -1], [0, 1]), ([0], [-1]), ([0, 1], [0])]
        before = on.image()
        for id_, (source, target) in enumerate(wrong):
            on.launch(id_, source, target)
        outcomes = on.outcomes(len(wrong))
        expect(set(outcomes.values()) == {QUIESCED} and len(outcomes) == len(wrong), outcomes)
        expect(on.image() == before, "something was changed all the same")
        on.launch(90, [1], [2])
        expect(on.outcomes(1) == {90: LANDED}, "a good read after them did not land")
    return ""


def what_no_window_lends_is_not_read(backend: str) -> str:
    """Unless `revoke` says that there are no windows: then the puller's bounds are all there is."""
    with pull_stage(backend) as on:
        on.lend([1, 2])
        on.lend([3, 4], window=WINDOW + 1)
        if not on.lender.call("revoke", WINDOW + 1):
            return "every page is lent to whoever may connect"
        before = on.image()
        on.launch(1, [1, 3], [1, 3])
        on.launch(2, [3], [3], window=WINDOW + 1)
        on.launch(3, [1], [1], window=WINDOW + 2)
        outcomes = on.outcomes(3)
        expect(outcomes == dict.fromkeys((1, 2, 3), QUIESCED), outcomes)
        expect(on.image() == before, "something was changed all the same")
        on.launch(4, [1, 2], [5, 6])
        expect(on.outcomes(1) == {4: LANDED}, "a read of an open window did not land")
    return "not lent, revoked and unknown windows are refused"


def a_landed_read_is_there(backend: str) -> str:
    with pull_stage(backend) as on:
        on.lend(on.all_pages())
        for round_ in range(LOOKS):
            page = round_ % on.n_pages
            on.launch(round_, [(page + 1) % on.n_pages], [page])
            expect(on.outcomes(1) == {round_: LANDED}, "a read did not land")
            expect(on.holds([page], 1, [(page + 1) % on.n_pages]) == [True], f"page {page} is not there yet")
            expect(on.puller.call("tags", [page]) == [TAG], "its tag is not there yet")
    return f"{LOOKS} looks"


def every_read_ends_once(backend: str) -> str:
    with pull_stage(backend) as on:
        on.lend(on.all_pages())
        for id_ in range(100):
            on.launch(id_, [id_ % 40], [id_ % 32])
        ids = [id_ for id_, _, _ in on.ends(100)]
        expect(sorted(ids) == list(range(100)), sorted(ids))
        late = on.puller.call("close")
        expect(late == [], late)
    return "100 reads, some of them bad"


def after_a_revocation_the_source_may_be_used_again(backend: str) -> str:
    """Windows are revoked with reads under way, half of them by a reader that stands still with full queues."""
    revoked = 0
    for round_ in range(ROUNDS):
        with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES) as on:
            on.lend(on.all_pages())
            on.warm_up()
            on.launch_all(1)
            if round_ % 2:
                on.puller.call("has_begun", 1, on.n_pages - 1)
            else:
                time.sleep(UNDER_WAY_S)
                on.puller.stop()
            if not on.lender.call("revoke", WINDOW):
                return "a window cannot be revoked: its source waits for its reader"
            on.lender.call("fill", 2)
            on.puller.go_on()
            outcomes = on.outcomes(1)
            later = on.holds_any(2)
            expect(later == 0, f"{later} pages of the source as it was after the revocation")
            landed = outcomes == {1: LANDED}
            expect(not landed or on.holds_any(1) == on.n_pages, f"{outcomes}, but not all of it is there")
            expect(landed == any(on.puller.call("tags", on.all_pages()[1:])), "tags do not say how it ended")
            revoked += not landed
    return f"{revoked} of {ROUNDS} reads were under way then"


def an_unknown_read_is_never_called_quiesced(backend: str) -> str:
    """The lender stands still, the read's time is over; the lender goes on, and its source is used again."""
    with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=SHORT_S) as on:
        on.lend(on.all_pages())
        on.warm_up()
        on.lender.stop()
        on.launch_all(1)
        outcomes = on.outcomes(1, SOON_S)
        expect(1 in outcomes, "the read never ended")
        image = on.image()
        on.lender.ask("fill", 2)
        on.lender.go_on()
        on.lender.answer()
        on.puller.call("wait", 1, SHORT_S)
        same = on.settled_image() == image
        expect(outcomes[1] != QUIESCED or same, "bytes came after a read was called quiesced")
        expect(on.puller.call("wait", 1, 0.0) == [], "the read ended twice")
        kept, later = on.holds_any(1), on.holds_any(2)
    return (
        f"{outcomes[1]}; of {on.n_pages - 1} pages {kept - 1} arrived, and {later} of the source as it was used later"
    )


def a_killed_lender_hangs_no_reader(backend: str) -> str:
    """And what its end left in the queues changes nothing after a read was called quiesced."""
    with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=SHORT_S) as on:
        on.lend(on.all_pages())
        on.warm_up()
        on.launch_all(1)
        on.lender.kill()
        on.launch(2, [0], [0])
        outcomes = on.outcomes(2, SOON_S)
        expect(sorted(outcomes) == [1, 2], outcomes)
        image = on.image()
        if set(outcomes.values()) <= {QUIESCED, LANDED}:
            expect(on.settled_image() == image, "bytes came after a read was called quiesced")
        on.puller.call("close")
    return ", ".join(outcomes[id_] for id_ in (1, 2))


def an_old_read_never_sees_a_later_life(backend: str) -> str:
    """Same host, same port, same window: what was launched towards an earlier life reads nothing of the next one."""
    with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=3.0) as on:
        on.lend(on.all_pages())
        on.warm_up()
        on.lender.stop()
        on.launch_all(1)
        on.lender.kill()
        later = Actor("lender")
        try:
            later.call("open", backend, LARGE_PAGE_BYTES, LARGE_PAGES, on.port)
            later.call("fill", 3)
            later.call("lend", WINDOW, on.all_pages())
            on.launch_all(2)
            outcomes = on.outcomes(2)
            expect(sorted(outcomes) == [1, 2], outcomes)
            expect(on.holds_any(3) == 0, "a page of the later life came for a read of the earlier one")
            expect(outcomes[2] != LANDED, outcomes)
        finally:
            later.close()
    return ""


def a_dead_reader_frees_its_source(backend: str) -> str:
    """Killed with a read under way: the lender is told once, and serves whoever comes next. Then the same standing.

    A library that ends the lender's process then (NIXL's does, seldom while it runs) leaves no source that could leak.
    """
    with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES) as on:
        try:
            _kill_a_reader(on, backend)
        except Broken:
            raise
        except PeerUnusable:
            expect(on.lender.has_ended(SOON_S), "the lender lives and does not answer")
            return "a lender whose reader was killed: its process ended, too"
        return _kill_a_reader_of_one_that_stands(on)


def _kill_a_reader(on: PullStage, backend: str) -> None:
    on.lend(on.all_pages())
    on.warm_up()
    on.launch_all(1)
    on.puller.close()  # SIGKILL, and reaped
    told = on.lender.call("await_dead", SOON_S)
    expect(told == 1, f"its death was told {told} times")
    on.puller = on.launcher = on.target = _next_reader(on, backend)
    on.lend(on.all_pages(), window=WINDOW + 1)
    on.launch(2, [1], [2], window=WINDOW + 1)
    expect(on.outcomes(1) == {2: LANDED}, "the next reader is not served")


def _kill_a_reader_of_one_that_stands(on: PullStage) -> str:
    on.lender.stop()
    on.launch(3, on.all_pages(), on.all_pages(), window=WINDOW + 1)
    on.puller.call("wait", 1, SHORT_S)
    on.puller.kill()
    on.lender.go_on()
    time.sleep(SHORT_S)  # there is no event to wait for: what is to be seen is that nothing happens
    try:
        on.lender.call("cpu_s")
    except PeerUnusable:
        return "a lender that stood still when its reader was killed: its process ended when it went on"
    return "a lender that stood still meanwhile goes on"


def _next_reader(on: PullStage, backend: str) -> Actor:
    """Another process that plays the same peer, as far as the lender's ticket allows: it describes itself anew."""
    puller = Actor("puller")
    puller.call("open", backend, on.page_bytes, on.n_pages, 60.0)
    on.puller = puller
    on.lender.call("next_peer")
    on.join()
    return puller


def after_close_nothing_comes(backend: str) -> str:
    """The puller's own fence: closed and joined, for a read of unknown fate too, while the lender stands still."""
    said = []
    for call_deadline_s in (60.0, SHORT_S):
        with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=call_deadline_s) as on:
            on.lend(on.all_pages())
            on.warm_up()
            on.lender.stop()
            on.launch_all(1)
            before = on.ends(1, SOON_S if call_deadline_s == SHORT_S else SHORT_S / 4)
            began_s = time.monotonic()
            ends = [*before, *map(tuple, on.puller.call("close"))]
            took_s = time.monotonic() - began_s
            expect(took_s < SOON_S, f"close took {took_s:.1f} s")
            expect([id_ for id_, _, _ in ends] == [1], ends)
            image = on.image()
            on.lender.go_on()
            time.sleep(SHORT_S / 2)  # as above
            expect(on.settled_image() == image, "bytes came after close")
            said.append(ends[0][1])
    return ", ".join(said)


def idle_lending_costs_nothing(backend: str) -> str:
    with pull_stage(backend) as on:
        on.lend([0])
        on.launch(1, [0], [0])
        expect(on.outcomes(1) == {1: LANDED}, "the one read before the rest did not land")

        def rest() -> Callable[[], object]:
            on.puller.ask("wait", 1, SHORT_S)
            return on.puller.answer

        return expect_idle(lambda: float(on.lender.call("cpu_s") + on.puller.call("cpu_s")), rest)


PULL: tuple[Check, ...] = (
    what_is_read_comes_where_told_and_nowhere_else,
    a_read_outside_is_refused_whole,
    what_no_window_lends_is_not_read,
    a_landed_read_is_there,
    every_read_ends_once,
    after_a_revocation_the_source_may_be_used_again,
    an_unknown_read_is_never_called_quiesced,
    a_killed_lender_hangs_no_reader,
    an_old_read_never_sees_a_later_life,
    a_dead_reader_frees_its_source,
    after_close_nothing_comes,
    idle_lending_costs_nothing,
)
