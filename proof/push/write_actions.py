"""Push: the life of a write, from the queue to its report. Half of it is the library's, the kernel's or the NIC's."""

from __future__ import annotations

from proof.logic import TRUE, Change, Formula, Step, Term, all_of, either, step, when
from proof.push.rules import PushRules
from proof.push.state import (
    PushState,
    in_lease,
    is_of,
    life,
    payload,
    place_of,
    rank,
    request,
    source_memory_of,
    source_page,
    target,
    target_page,
    write,
    writer,
    writer_life,
)

place = place_of(write)


# ---------------------------------------------------------------- the rank


def dequeue(s: PushState, rules: PushRules) -> Step:
    """A queued chunk gets its turn: dropped if the attempt was stopped, else counted before it is launched (rule 4)."""
    return step(
        s.bound(*place),
        s.current(writer(write), writer_life(write)),
        when(rules.queue_is_dropped, ~s.stopped(*place)),
        in_lease(target_page(write), target(write)),
        s.bound_to(*place, payload(write)),
        s.source_holds(source_page(write), payload(write)),
        when(rules.fresh_source_memory, source_memory_of(source_page(write)) == writer_life(write)),
        ~s.dequeued(write),
        then=[s.dequeued.plus(write), *([s.outstanding.plus(write)] if rules.count_rises_at_dequeue else [])],
    )


def launch(s: PushState, rules: PushRules) -> Step:
    """The write is handed to the transport. A fenced destination takes nothing, however late (section 3)."""
    lets_in = ~s.fenced(*place) if rules.fence_is_permanent else TRUE
    return step(
        s.dequeued(write),
        ~s.launched(write),
        s.current(writer(write), writer_life(write)),
        then=[
            s.launched.plus(write),
            s.reading.plus(write),
            s.flying.plus_where(lambda w: all_of(w == write, lets_in)),
            *([] if rules.count_rises_at_dequeue else [s.outstanding.plus(write)]),
        ],
    )


# ---------------------------------------------------------------- library, kernel, NIC


def read_source(s: PushState, rules: PushRules) -> Step:
    """The source is read at some time after the launch, whatever it holds by then, crashes and aborts regardless."""
    return step(
        s.reading(write),
        s.source_holds(source_page(write), request),
        then=[s.reading.minus(write), s.carries.plus(write, request)],
    )


def tear(s: PushState, rules: PushRules) -> Step:
    """Some of the bytes land: the slice is whole no more, and the tag beside it is the one that was there before."""
    return step(
        s.flying(write),
        ~s.reading(write),
        then=[
            s.torn.plus(write),
            s.slice_holds.minus_where(lambda k, p, q: all_of(k == writer(write), p == target_page(write))),
        ],
    )


def land(s: PushState, rules: PushRules) -> Step:
    """The rest lands and the tag is stamped: only now is the write out of the air (section 6, `landed`)."""

    def is_hit(k: Term, p: Term) -> Formula:
        return all_of(k == writer(write), p == target_page(write))

    return step(
        s.flying(write),
        ~s.reading(write),
        then=[
            s.flying.minus(write),
            s.torn.minus(write),
            s.placed.plus(write),
            s.slice_holds.becomes(lambda k, p, q: either(is_hit(k, p), s.carries(write, q), s.slice_holds(k, p, q))),
            s.tag.becomes(lambda k, p, t: either(is_hit(k, p), t == target(write), s.tag(k, p, t))),
        ],
    )


def vanish(s: PushState, rules: PushRules) -> Step:
    """A write fails for good: what has not landed never will."""
    return step(s.flying(write), then=[s.flying.minus(write), s.reading.minus(write)])


def destroy_endpoint(s: PushState, rules: PushRules) -> Step:
    """The sender's own endpoint is destroyed and joined (`source_fence`): it reads no source any more.

    What was read already may still land, so this permits no ack (rule 5).
    """

    def is_mine(w: Term) -> Formula:
        return all_of(writer(w) == rank, writer_life(w) == life)

    forgiven = [
        s.outstanding.minus_where(lambda w: all_of(s.launched(w), is_mine(w))),
        s.poisoned.minus_where(lambda k, i, t: all_of(k == rank, i == life)),
    ]
    return step(
        s.current(rank, life),
        then=[
            s.source_fenced.plus_where(lambda w: all_of(s.launched(w), is_mine(w))),
            s.reading.minus_where(is_mine),
            s.flying.minus_where(lambda w: all_of(s.reading(w), is_mine(w))),
            *([] if rules.source_fence_is_no_ack else forgiven),
        ],
    )


# ---------------------------------------------------------------- reports; they reach only the life that launched


def landed(s: PushState, rules: PushRules) -> Step:
    """`landed`: placed at the destination, visible to the reader. The count falls."""
    return step(
        s.current(writer(write), writer_life(write)),
        when(rules.landed_is_placed, s.placed(write)),
        s.launched(write),
        s.outstanding(write),
        then=[s.outstanding.minus(write), s.settled.plus(write)],
    )


def failed_quiesced(s: PushState, rules: PushRules) -> Step:
    """`failed_quiesced`: nothing of it can land any more. The count falls, the attempt stops."""
    return step(
        s.current(writer(write), writer_life(write)),
        s.launched(write),
        s.outstanding(write),
        when(rules.quiesced_cannot_land, all_of(~s.flying(write), ~s.reading(write))),
        then=[s.outstanding.minus(write), s.settled.plus(write), *([_stops(s)] if rules.failure_stops else [])],
    )


def failed_in_flight(s: PushState, rules: PushRules) -> Step:
    """`failed_in_flight`: nobody knows. The count falls but the attempt is poisoned, unless it is fenced (rule 5)."""

    def is_poisoned(k: Term, i: Term, t: Term) -> Formula:
        return all_of(is_of(write, k, i, t), s.bound(k, i, t), ~s.heard_fenced(k, i, t))

    return step(
        s.current(writer(write), writer_life(write)),
        s.launched(write),
        s.outstanding(write),
        then=[
            s.outstanding.minus(write),
            _stops(s),
            *([s.poisoned.plus_where(is_poisoned)] if rules.unknown_fate_poisons else []),
        ],
    )


def _stops(s: PushState) -> Change:
    return s.stopped.plus(*place)


ACTIONS = (
    dequeue,
    launch,
    read_source,
    tear,
    land,
    vanish,
    destroy_endpoint,
    landed,
    failed_quiesced,
    failed_in_flight,
)
