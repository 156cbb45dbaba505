"""Named events that a campaign should have seen: what was never exercised was not tested."""

from __future__ import annotations

from collections import Counter

MARKS = {
    "abort before BOUND": "decode gave up before prefill had met its PUBLISH",
    "abort with writes in flight": "decode gave up while writes to its pages were under way",
    "ABORT of an unknown attempt": "a rank that never heard of the attempt wrote a tombstone and acked",
    "ABORT acked again": "a re-sent ABORT met a tombstone and was acked again",
    "PUBLISH refused by tombstone": "a late or copied PUBLISH could not revive an attempt",
    "PUBLISH refused as closed": "a PUBLISH came for an attempt that decode had released",
    "PUBLISH before its request": "a destination was announced before the router's half came",
    "PUBLISH sent again": "no BOUND came in time",
    "ABORT sent again": "no ack came in time",
    "DONE sent again": "no COMMITTED came in time",
    "FAIL{poisoned} sent again": "no FENCED came in time",
    "BOUND for a copied PUBLISH": "PUBLISH came twice and was answered twice",
    "request given up before PUBLISH": "prefill remembered that it gave up and answered FAIL",
    "early ack ignored": "an ack from before the hold changed nothing",
    "late ack ignored": "an ack for an attempt that is over changed nothing",
    "duplicate ack ignored": "the same ack twice",
    "foreign message ignored": "a rank that was never granted the attempt spoke of it",
    "message for an earlier life": "a worker heard something that was meant for its earlier life",
    "message from a dead life": "a worker heard somebody who is known to be dead",
    "late DONE proves": "DONE came after the abort and was the proof",
    "late write lands in held pages": "a write landed after its request was over, and hit nobody",
    "write lands after its writer's death": "bytes were on their way when the writer died",
    "failed write lands": "a write that was reported as failed landed later",
    "write fails for good": "failed_quiesced",
    "attempt poisoned": "a write has an unknown fate: no ack, ever",
    "fence": "a receiver-side fact kept writes out",
    "fence after deadline": "the hold deadline passed and a fence was found",
    "fence keeps a write out": "a write came to a fence",
    "writer killed as a fence": "--fence-policy fence",
    "quarantine": "the hold deadline passed without a proof",
    "quarantine released by an ack": "the proof came after all",
    "quarantine released by the writer's death": "the proof came with the end of a life",
    "new life because of quarantine": "more than --quarantine-budget was out of circulation",
    "released drained": "",
    "released fenced": "",
    "source released never_armed": "",
    "source released drained": "",
    "source released fenced": "",
    "hand-off timed out": "rule 17 at decode",
    "orphan PUBLISH timed out": "rule 17 at prefill: a destination without its request",
    "request without PUBLISH timed out": "rule 17 at prefill: a request without its destination",
    "PROGRESS restarts the clock": "a long prompt was heard of",
    "verification failed": "coverage found a page without its tag",
    "equal rooms at once": "two live requests had the same room",
    "prefill crashed with writes in flight": "",
    "decode crashed with writes in flight": "",
    "prefill restarted": "decode met a new life under an old name",
    "decode restarted": "prefill learnt that a decode life is over",
    "stream cut with messages on it": "what was unread is lost",
    "worker stalled": "a process stopped for a while and went on",
    "router lost a worker": "the router's stream to a worker was cut",
    "worker silent": "a worker did not answer the router's pings",
    "decode prefix hit": "decode asked prefill only for what it lacked",
    "prefill prefix hit": "prefill computed only what was not cached",
    "cached pages evicted": "the cache gave pages back to the allocator",
    "prefix hit after eviction": "a cache that had to give pages back was still of use",
    "retracted": "pages ran out and a sequence went to host memory",
    "restored": "it came back",
    "retry on a fresh room": "a try failed and another followed",
    "rejected by the router": "nothing of it ever existed at a worker",
    "rejected at a worker's door": "",
    "queue full": "429",
    "throttled": "a tenant's minute was used up",
    "client left": "",
    "client left, hand-off finished first": "--on-disconnect after-handoff",
    "deadline": "",
    "breaker suspected": "",
    "breaker open": "",
    "breaker closed again": "",
    "probe passed": "",
    "probe failed": "",
    "answered": "",
}
"""By name: what it says, where the name does not. Never to be hit is the release of an attempt that was granted to
nobody: a worker asks who can be granted in the very turn in which it reserves.
"""


class Marks:
    """Which were hit, and how often."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        self.hits[name] += 1

    def never(self) -> list[str]:
        return [name for name in MARKS if not self.hits[name]]
