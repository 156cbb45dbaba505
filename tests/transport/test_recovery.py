"""One failure shuts no peer out: it is written to again when it goes on, and so is its next life."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quiesce.transport.conformance.expectation import IN_FLIGHT, LANDED, LARGE_PAGE_BYTES, LARGE_PAGES, SHORT_S
from quiesce.transport.conformance.stage import Actor, Stage, stage

from .installed import skip_unless_here

pytestmark = pytest.mark.slow


@pytest.fixture(params=["tcp", "mooncake", "nixl"])
def failed(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A write ended as unknown, for its receiver stands still."""
    skip_unless_here(request.param)
    with stage(request.param, page_bytes=LARGE_PAGE_BYTES, pages=LARGE_PAGES, call_deadline_s=SHORT_S) as on:
        on.arm(on.all_pages())
        on.warm_up()
        on.receiver.stop()
        on.launch(1, on.all_pages(), on.all_pages())
        assert on.outcomes(1) == {1: IN_FLIGHT}
        yield on


def test_who_stood_still_is_written_to_when_it_goes_on(failed: Stage) -> None:
    failed.receiver.go_on()
    failed.settled_image()
    failed.writer.call("fill", 2)
    failed.launch(2, [1], [0])
    assert failed.outcomes(1) == {2: LANDED}
    assert failed.holds([0], 2, [1]) == [True]


def test_the_next_life_of_who_was_killed_is_written_to(failed: Stage, request: pytest.FixtureRequest) -> None:
    failed.receiver.close()
    failed.receiver = failed.target = Actor("receiver")
    name = request.node.callspec.params["failed"]
    failed.receiver.call("open", name, LARGE_PAGE_BYTES, LARGE_PAGES, failed.slots, failed.port)
    failed.writer.call("close_target")
    failed.join()
    failed.arm([0])
    failed.launch(2, [1], [0])
    assert failed.outcomes(1) == {2: LANDED}
    assert failed.holds([0], 1, [1]) == [True]
