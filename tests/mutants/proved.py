"""Which mutant of the proof leaves out the same rule as a mutant of the machines: (model, name)."""

from __future__ import annotations

HOLDS = "one way to fail gives the pages back at once"

PROVED: dict[str, tuple[str, str]] = {
    "client abort does not hold": ("push", HOLDS),
    "prefill's FAIL does not hold": ("push", HOLDS),
    "deadline does not hold": ("push", HOLDS),
    "lost stream does not hold": ("push", HOLDS),
    "peer's new life does not hold": ("push", HOLDS),
    "failed verification does not hold": ("push", HOLDS),
    "ranks that said no BOUND need not ack": ("push", "only ranks that said BOUND are waited for"),
    "ack while writes are outstanding": ("push", "ack while writes are outstanding"),
    "ack without marking the attempt aborted": ("push", "queued chunks go out after ABORT"),
    "calls queued behind a failed one are launched": ("push", "a failed call does not end the attempt"),
    "failed_in_flight does not poison": ("push", "failed_in_flight does not poison"),
    "a poisoned attempt is acked": ("push", "a poisoned attempt is acked"),
    "one decode rank's proof releases the whole attempt": ("push", "an ack for a sibling decode rank's lease counts"),
    "answers are matched by room": ("push", "acks are matched by room"),
    "an ack of the next life counts": ("push", "an ack of the rank's next life counts"),
    "re-PUBLISH to the next life forgets the old grant": (
        "push",
        "PUBLISH to a rank's next life forgets that the old one was granted",
    ),
    "commit after the first DONE (coverage off)": (
        "push",
        "commit without the DONE of every granted rank and life",
    ),
    "no tombstone after the ack": ("push", "no tombstone: a late PUBLISH revives the attempt"),
    "never heard of it: ack without tombstone": ("push", "never heard of it: ack without a tombstone"),
    "closed attempts are obeyed": (
        "push",
        "tombstones go when the attempt is closed, and PUBLISH of a closed attempt is obeyed",
    ),
    "what is closed opens again": ("push", "what is closed opens again when an older message is heard"),
    "held attempts are not listed as open": ("push", "quarantined attempts are not listed as open"),
    "quarantined attempts are not listed as open": ("push", "quarantined attempts are not listed as open"),
    "the record goes at COMMITTED": ("push", "the record goes at COMMITTED"),
    "a lost stream forgets tombstones": ("push", "records go with a lost peer, and its life is not refused"),
    "a late reject says DONE, and nobody looks at tags": (
        "push",
        "a late reject says DONE, and nobody looks at tags",
    ),
    "a failed hand-off is cached": ("push", "a failed attempt's page enters the prefix tree"),
    "the source is free when the request ends": ("push", "the source is free when its request has failed"),
    "the source is free at count zero, poisoned or not": (
        "push",
        "the source is free when the count is zero, poisoned or not",
    ),
    "a decode rank decides alone (coverage off)": ("push", "each decode rank decides alone"),
    "released twice": ("push", "release does not ask whether the lease is released already"),
    "a clock frees what is held": ("push", "a clock, a flush or a shutdown frees what is held"),
    "PUBLISH is paired by room alone": ("push", "PUBLISH is paired by room alone"),
    "memory survives the decode life": ("push", "memory survives the decode life"),
    "the writer's death is a fence": ("push", "the writer's death is a fence whatever the transport"),
}
