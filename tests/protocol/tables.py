"""Every (state, input) pair that a small alphabet reaches, as text: what each machine does, in every state.

`python -m tests.protocol.tables` rewrites the tables beside this file after a wanted change; read the difference.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quiesce.ids import Attempt
from quiesce.protocol import lender, puller, receiver, receiver_rules, sender, sender_rules
from quiesce.protocol.lender_io import ReaderDead, Revoked
from quiesce.protocol.messages import Abort, AbortAck, Bound, Committed, Fail, Fenced, Progress
from quiesce.protocol.puller_io import EndpointClosed, ReadSettled
from quiesce.protocol.receiver_io import (
    Abandon,
    FenceProved,
    Finished,
    PeerReplaced,
    StreamLost,
    Timer,
    TimerFired,
    Verified,
)
from quiesce.protocol.sender_io import (
    Arrived,
    ChunkComputed,
    DecodeLost,
    DecodeReplaced,
    Ended,
    Outcome,
    Refused,
    SenderTimer,
    SenderTimerFired,
    SourceFenced,
    WriteSettled,
)
from tests.protocol.scene import (
    BROKEN,
    D0,
    D_LIFE,
    DIGEST,
    DONE,
    GONE,
    KEY,
    ONE,
    OTHER_DIGEST,
    P0,
    P0_NEXT,
    P1,
    RID,
    ROOM,
    STRANGER,
    ask,
    from_decode,
    from_prefill,
    kinds,
    lent,
    offer,
    publish,
    reserve,
)

HERE = Path(__file__).parent

RECEIVER_INPUTS: Mapping[str, Any] = {
    "reserve": reserve(P0, P1),
    "bound": from_prefill(Bound()),
    "progress": from_prefill(Progress()),
    "progress of other rank": from_prefill(Progress(), sender=P1),
    "done": from_prefill(DONE),
    "done of other rank": from_prefill(DONE, sender=P1),
    "done of other prompt": from_prefill(type(DONE)(OTHER_DIGEST, (1,), "", 5)),
    "fail": from_prefill(Fail(BROKEN)),
    "fail poisoned": from_prefill(Fail(BROKEN, poisoned=True)),
    "ack": from_prefill(AbortAck()),
    "ack of other rank": from_prefill(AbortAck(), sender=P1),
    "ack outstanding": from_prefill(AbortAck(outstanding=1)),
    "ack of stranger": from_prefill(AbortAck(), sender=STRANGER),
    "ack to earlier life": from_prefill(AbortAck(), to=type(D0)(0, STRANGER.incarnation)),
    "ack to no rank": from_prefill(AbortAck(), to=type(D0)(9, D_LIFE)),
    "abort (unexpected)": from_prefill(Abort()),
    "verified": Verified(ONE),
    "verified failed": Verified(ONE, BROKEN),
    "abandon": Abandon(ONE, GONE),
    "stream lost": StreamLost(P0),
    "peer replaced": PeerReplaced(P0),
    "fence proved": FenceProved(P0, ONE),
    "fence proved, all": FenceProved(P0),
    "fence of other rank": FenceProved(P1, ONE),
    "clock handoff": TimerFired(ONE, Timer.HANDOFF),
    "clock hold": TimerFired(ONE, Timer.HOLD),
    "clock resend": TimerFired(ONE, Timer.RESEND),
    "finished": Finished(ONE),
}

SENDER_INPUTS: Mapping[str, Any] = {
    "arrived": Arrived(RID, ROOM, DIGEST),
    "refused": Refused(ROOM, DIGEST, BROKEN),
    "ended": Ended(RID, GONE),
    "publish": from_decode(publish()),
    "publish of other prompt": from_decode(publish(digest=OTHER_DIGEST)),
    "publish too small": from_decode(publish(pages=0)),
    "abort": from_decode(Abort()),
    "committed": from_decode(Committed()),
    "fenced": from_decode(Fenced()),
    "fail": from_decode(Fail(BROKEN)),
    "done (unexpected)": from_decode(DONE),
    "closed by a later message": from_decode(Committed(), attempt=2, still=(2,), watermark=3),
    "abort to next life": from_decode(Abort(), to=P0_NEXT),
    "chunk": ChunkComputed(RID, 0, 1),
    "last chunk": ChunkComputed(RID, 0, 1, last=True, first_token=5),
    "landed": WriteSettled(KEY, 1, Outcome.LANDED),
    "failed_quiesced": WriteSettled(KEY, 1, Outcome.FAILED_QUIESCED),
    "failed_in_flight": WriteSettled(KEY, 1, Outcome.FAILED_IN_FLIGHT),
    "decode lost": DecodeLost(D0),
    "decode replaced": DecodeReplaced(D0),
    "source fenced": SourceFenced(),
    "clock orphan": SenderTimerFired(KEY, SenderTimer.ORPHAN),
    "clock resend": SenderTimerFired(KEY, SenderTimer.RESEND),
    "clock progress": SenderTimerFired(KEY, SenderTimer.PROGRESS),
    "clock request": SenderTimerFired(RID, SenderTimer.REQUEST),
    "clock forget": SenderTimerFired((ROOM, DIGEST), SenderTimer.FORGET),
    "clock of nothing": SenderTimerFired(RID, SenderTimer.RESEND),
}


PULLER_INPUTS: Mapping[str, Any] = {
    "reserve": reserve(P0, P1),
    "bound": from_prefill(Bound()),
    "progress": from_prefill(Progress()),
    "offer": from_prefill(offer()),
    "offer of other rank": from_prefill(offer(), sender=P1),
    "offer of other prompt": from_prefill(offer(digest=OTHER_DIGEST)),
    "offer too small": from_prefill(offer(pages=2)),
    "offer of stranger": from_prefill(offer(), sender=STRANGER),
    "offer to earlier life": from_prefill(offer(), to=type(D0)(0, STRANGER.incarnation)),
    "fail": from_prefill(Fail(BROKEN)),
    "abort": from_prefill(Abort()),
    "ack (unexpected)": from_prefill(AbortAck()),
    "landed": ReadSettled(ONE, 1, Outcome.LANDED),
    "failed_quiesced": ReadSettled(ONE, 1, Outcome.FAILED_QUIESCED),
    "failed_in_flight": ReadSettled(ONE, 1, Outcome.FAILED_IN_FLIGHT),
    "other read landed": ReadSettled(ONE, 2, Outcome.LANDED),
    "other read failed_in_flight": ReadSettled(ONE, 2, Outcome.FAILED_IN_FLIGHT),
    "verified": Verified(ONE),
    "verified failed": Verified(ONE, BROKEN),
    "abandon": Abandon(ONE, GONE),
    "stream lost": StreamLost(P0),
    "peer replaced": PeerReplaced(P0),
    "endpoint closed": EndpointClosed(),
    "clock handoff": TimerFired(ONE, Timer.HANDOFF),
    "clock hold": TimerFired(ONE, Timer.HOLD),
    "clock resend": TimerFired(ONE, Timer.RESEND),
    "finished": Finished(ONE),
}

LENDER_INPUTS: Mapping[str, Any] = {
    "arrived": Arrived(RID, ROOM, DIGEST),
    "refused": Refused(ROOM, DIGEST, BROKEN),
    "ended": Ended(RID, GONE),
    "ask": from_decode(ask()),
    "ask of other prompt": from_decode(ask(digest=OTHER_DIGEST)),
    "ack": from_decode(AbortAck()),
    "committed": from_decode(Committed()),
    "fenced": from_decode(Fenced()),
    "fail": from_decode(Fail(BROKEN)),
    "abort (unexpected)": from_decode(Abort()),
    "closed by a later message": from_decode(Committed(), attempt=2, still=(2,), watermark=3),
    "ack to next life": from_decode(AbortAck(), to=P0_NEXT),
    "computed": lent(),
    "revoked": Revoked(KEY),
    "reader dead": ReaderDead(D0),
    "reader of next life dead": ReaderDead(type(D0)(0, STRANGER.incarnation)),
    "decode lost": DecodeLost(D0),
    "decode replaced": DecodeReplaced(D0),
    "clock orphan": SenderTimerFired(KEY, SenderTimer.ORPHAN),
    "clock resend": SenderTimerFired(KEY, SenderTimer.RESEND),
    "clock progress": SenderTimerFired(KEY, SenderTimer.PROGRESS),
    "clock lent": SenderTimerFired(KEY, SenderTimer.LENT),
    "clock request": SenderTimerFired(RID, SenderTimer.REQUEST),
    "clock forget": SenderTimerFired((ROOM, DIGEST), SenderTimer.FORGET),
}


def receiver_phase(state: receiver.ReceiverState | puller.PullerState) -> str:
    attempt = state.attempts.get(ONE)
    if attempt is not None:
        return attempt.phase.value
    return "over" if state.next_attempt > ONE else "-"


def sender_phase(state: sender.SenderState) -> str:
    record, request = state.records.get(KEY), state.requests.get(RID)
    left = "-" if record is None else record.phase.value
    window = " and lent" if record is not None and sender_rules.is_lent(record) else ""
    return f"{left}{window}, {'-' if request is None else request.phase.value}"


def describe(phase: str, effects: tuple[Any, ...]) -> str:
    ignored = [f"Ignored({effect.reason})" for effect in effects if hasattr(effect, "reason")]
    done = [kind for kind in kinds(effects) if not kind.endswith("Ignored")]
    return f"{phase}: {' '.join([*ignored, *done]) or 'nothing'}"


def table(
    starts: list[Any], step: Callable[[Any, Any], Any], phase: Callable[[Any], str], inputs: Mapping[str, Any]
) -> str:
    """`state | input -> what follows` for every reachable pair; several outcomes of one pair are lines of their own."""
    rows: dict[tuple[str, str], set[str]] = defaultdict(set)
    seen, queue = set(starts), deque(starts)
    while queue:
        state = queue.popleft()
        for label, fact in inputs.items():
            if not is_fresh(state, label):
                continue
            after, effects = step(state, fact)
            rows[phase(state), label].add(describe(phase(after), effects))
            if after not in seen:
                seen.add(after)
                queue.append(after)
    order = list(inputs)
    lines = [
        f"{where} | {label} -> {outcome}"
        for (where, label), outcomes in sorted(rows.items(), key=lambda row: (row[0][0], order.index(row[0][1])))
        for outcome in sorted(outcomes)
    ]
    return "\n".join(lines) + "\n"


def is_fresh(state: Any, label: str) -> bool:
    """One attempt, one request of a name and a few writes are enough; more would be the same again."""
    if label == "reserve":
        return bool(state.next_attempt == Attempt(1))
    if label == "chunk":
        return bool(state.next_write == 1)
    return label != "arrived" or all(record.request != RID for record in state.records.values())


def receiver_table() -> str:
    starts = [receiver.start(D_LIFE), receiver.start(D_LIFE, unsafe_release_on_timeout=True)]
    return table(starts, receiver.step, receiver_phase, RECEIVER_INPUTS)


def sender_table() -> str:
    return table([sender.start(P0)], _sender_step, sender_phase, SENDER_INPUTS)


def _sender_step(state: Any, fact: Any) -> Any:
    """Chunks in order: the last one follows the first, if there was one."""
    request = state.requests.get(RID)
    if isinstance(fact, ChunkComputed) and request is not None and request.next_page > 0:
        fact = ChunkComputed(RID, request.next_page, 0, fact.last, fact.first_token)
    return sender.step(state, fact)


def puller_table() -> str:
    starts = [puller.start(D_LIFE), puller.start(D_LIFE, unsafe_release_on_timeout=True)]
    return table(starts, puller.step, receiver_phase, PULLER_INPUTS)


def lender_table() -> str:
    return table([lender.start(P0)], lender.step, sender_phase, LENDER_INPUTS)


TABLES = {
    "receiver_table.txt": receiver_table,
    "sender_table.txt": sender_table,
    "puller_table.txt": puller_table,
    "lender_table.txt": lender_table,
}

if __name__ == "__main__":  # back-off rounds would only multiply states
    receiver_rules.MAX_RESEND_ROUND = sender_rules.MAX_RESEND_ROUND = 0
    for name, make in TABLES.items():
        (HERE / name).write_text(make())
