"""What no lease permits is not written: pages that were never armed, and those that were disarmed again."""

from __future__ import annotations

from quiesce.transport.conformance.expectation import LANDED, expect
from quiesce.transport.conformance.stage import TAG, stage

CALL_S = 10.0


def what_no_lease_permits_is_not_written(backend: str) -> str:
    """lease_bound: by a writer that keeps to the pool and not to its lease. How such a write ends is its affair."""
    with stage(backend, call_deadline_s=CALL_S) as on:
        on.arm([1, 2])
        on.launch(1, [1, 2], [1, 2])
        expect(on.outcomes(1) == {1: LANDED}, "a write of an armed lease did not land")
        before = on.image()
        on.launch(2, [3], [3])
        on.launch(3, [4], [4], tag=TAG + 1)
        outcomes = on.outcomes(2)
        on.receiver.call("disarm", TAG)
        on.launch(4, [5], [1])
        outcomes |= on.outcomes(1)
        expect(sorted(outcomes) == [2, 3, 4], outcomes)
        expect(on.stays(before), f"something was changed all the same: {outcomes}")
        expect(LANDED not in outcomes.values(), outcomes)
    return ", ".join(outcomes[id_] for id_ in (2, 3, 4))
