"""What lies beside a pool stays as it is, whatever is written to its first and last pages, or refused."""

from __future__ import annotations

from quiesce.transport.conformance.expectation import LANDED, QUIESCED, expect
from quiesce.transport.conformance.pull_stage import pull_stage
from quiesce.transport.conformance.stage import TAG, stage

PAGES, PAGE_BYTES = 33, 512
"""No plane of such a pool fills its mapping: there is room for canaries behind each."""
WORDS = [TAG, *range(1, 8)]


def what_lies_beside_the_pool_stays_as_it_is(backend: str) -> str:
    with stage(backend, page_bytes=PAGE_BYTES, pages=PAGES, slots=1, guarded=True) as on:
        on.arm(on.all_pages())
        before = on.receiver.call("guard")
        on.launch(1, [0, PAGES - 1], [PAGES - 1, 0], [0, *WORDS])
        on.launch(2, on.all_pages(), on.all_pages())
        for id_, page in enumerate((-1, PAGES, PAGES + 1), 3):
            on.launch(id_, [0], [page])
        for id_, slot in enumerate((-1, 1), 6):
            on.launch(id_, [0], [0], [slot, *WORDS])
        outcomes = on.outcomes(7)
        expect(outcomes == dict.fromkeys((1, 2), LANDED) | dict.fromkeys(range(3, 8), QUIESCED), outcomes)
        expect(on.receiver.call("canaries") == before, "a byte beside the pool was changed")
    return ""


def what_lies_beside_the_reader_s_pool_stays_as_it_is(backend: str) -> str:
    with pull_stage(backend, page_bytes=PAGE_BYTES, pages=PAGES, guarded=True) as on:
        on.lend(on.all_pages())
        before = on.puller.call("guard")
        on.launch(1, [0, PAGES - 1], [PAGES - 1, 0])
        on.launch(2, on.all_pages(), on.all_pages())
        for id_, page in enumerate((-1, PAGES, PAGES + 1), 3):
            on.launch(id_, [0], [page])
        outcomes = on.outcomes(5)
        expect(outcomes == dict.fromkeys((1, 2), LANDED) | dict.fromkeys(range(3, 6), QUIESCED), outcomes)
        expect(on.puller.call("canaries") == before, "a byte beside the pool was changed")
    return ""
