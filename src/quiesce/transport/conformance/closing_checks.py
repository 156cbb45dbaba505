"""What an end proves whose process and memory live on: after `close` of the side that was offered, nothing moves."""

from __future__ import annotations

from quiesce.transport.conformance.expectation import LANDED, LARGE_PAGE_BYTES, LARGE_PAGES, expect
from quiesce.transport.conformance.pull_stage import pull_stage
from quiesce.transport.conformance.stage import Stage, stage

CALL_S = 3.0
SOME_PAGES = LARGE_PAGES // 2
"""Still more than may be placed before `close` is heard."""
LOOKS = 4


def after_the_receiver_s_close_no_byte_changes(backend: str) -> str:
    """close_fence: the sender stays open, with one write under way then and another one later; neither lands."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=SOME_PAGES, call_deadline_s=CALL_S) as on:
        _close_mid_write(on)
        image = on.image()
        whole = all(on.receiver.call("tags", on.all_pages()))
        outcomes = _write_on(on)
        expect(on.stays(image), f"bytes changed after close; the writes ended as {outcomes}")
        expect(outcomes.get(2) != LANDED and (whole or outcomes.get(1) != LANDED), outcomes)
    return f"{outcomes[1]}, {outcomes[2]}"


def a_closed_receiver_s_memory_may_be_used_again(backend: str) -> str:
    """At the same addresses, for something else, while an open sender goes on: none of its bytes is ever there."""
    with stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=SOME_PAGES, call_deadline_s=CALL_S) as on:
        _close_mid_write(on)
        on.receiver.call("use_again")
        outcomes = _write_on(on)
        expect(all(on.receiver.call("is_untouched") for _ in range(LOOKS)), f"a byte came after close: {outcomes}")
    return f"{outcomes[1]}, {outcomes[2]}"


def _close_mid_write(on: Stage) -> None:
    on.arm(on.all_pages())
    on.warm_up()
    on.launch(1, on.all_pages(), on.all_pages())
    on.receiver.call("has_begun", 1, on.n_pages - 1)
    on.receiver.call("close")


def _write_on(on: Stage) -> dict[int, str]:
    """With other bytes; how the write that was under way and the new one ended."""
    on.writer.call("fill", 2)
    on.launch(2, on.all_pages(), on.all_pages())
    outcomes = on.outcomes(2)
    expect(sorted(outcomes) == [1, 2], outcomes)
    return outcomes


def after_the_lender_s_close_nothing_is_read(backend: str) -> str:
    """Its source is used again, for a read that was under way and one that comes later."""
    with pull_stage(backend, page_bytes=LARGE_PAGE_BYTES, pages=SOME_PAGES, call_deadline_s=CALL_S) as on:
        on.lend(on.all_pages())
        on.warm_up()
        on.launch_all(1)
        on.puller.call("has_begun", 1, on.n_pages - 1)
        on.lender.call("close")
        on.lender.call("fill", 2)
        on.launch_all(2)
        outcomes = on.outcomes(2)
        expect(sorted(outcomes) == [1, 2], outcomes)
        later = on.holds_any(2)
        expect(later == 0, f"{later} pages of the source as it was after close")
        whole = outcomes[1] != LANDED or on.holds_any(1) == on.n_pages
        expect(outcomes[2] != LANDED and whole, outcomes)
    return f"{outcomes[1]}, {outcomes[2]}"
