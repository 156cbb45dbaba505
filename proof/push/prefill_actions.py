"""Push: what a prefill rank does (the sender machine). One function, one action; its writes are in `write_actions`."""

from __future__ import annotations

from proof.logic import Change, Formula, Step, Term, Value, all_of, any_of, either, every, implies, some, step, when
from proof.push.rules import PushRules
from proof.push.state import (
    Lease,
    Life,
    PushState,
    Rank,
    Write,
    attempt_of,
    decode_life,
    decode_life_of,
    digest,
    is_of,
    lease,
    life,
    next_life,
    plain_stores,
    prefill_room,
    rank,
    request,
    room_of,
    source,
    source_memory_of,
    source_page,
    target,
    there,
    wanted,
    writer_life,
)


def hears(s: PushState, rules: PushRules) -> Formula:
    """Whom this rank obeys: not a buried decode life, and nothing about a closed attempt (rule 9)."""
    not_buried = ~s.buried(rank, life, decode_life_of(lease))
    return all_of(
        s.current(rank, life),
        when(rules.buried_is_refused, not_buried),
        when(rules.closed_is_refused, ~s.closed(*there)),
    )


def is_idle(s: PushState) -> Formula:
    """This rank's count for this destination is zero (rule 4)."""
    return every(Write, lambda w: ~all_of(s.outstanding(w), is_of(w, *there)))


# ---------------------------------------------------------------- hand-offs


def bind(s: PushState, rules: PushRules) -> Step:
    """PUBLISH meets its request: same room and same digest (section 2), and no tombstone says that it is over."""
    same_room = prefill_room(request) == room_of(attempt_of(lease))
    same_digest = digest(request) == digest(wanted(attempt_of(lease)))
    revived = [] if rules.tombstones else [s.stopped.minus(*there)]
    return step(
        s.granted(*there),
        hears(s, rules),
        ~s.bound(*there),
        when(rules.tombstones, ~s.tombstone(*there)),
        same_room,
        when(rules.digest_pairs, same_digest),
        then=[
            s.bound.plus(*there),
            s.bound_to.plus(*there, request),
            s.said_bound.plus(*there),
            *revived,
            *([] if rules.count_is_per_attempt else [s.outstanding.minus_where(_is_in_this_room)]),
        ],
    )


def _is_in_this_room(w: Term) -> Formula:
    same_room = room_of(attempt_of(target(w))) == room_of(attempt_of(lease))
    return all_of(is_of(w, rank, life, target(w)), same_room)


def send_done(s: PushState, rules: PushRules) -> Step:
    """DONE: nothing failed, nothing is outstanding. It is no proof of content: see `commit` (rule 11)."""
    return step(
        s.bound(*there),
        s.current(rank, life),
        ~s.stopped(*there),
        ~s.poisoned(*there),
        is_idle(s),
        then=[s.said_done.plus(*there), s.stopped.plus(*there)],
    )


def stop(s: PushState, rules: PushRules) -> Step:
    """Prefill ends it by itself: client, router, deadline, a failure of its own, a lost stream."""
    return step(s.bound(*there), s.current(rank, life), then=[s.stopped.plus(*there)])


def hear_abort(s: PushState, rules: PushRules) -> Step:
    """ABORT: mark first, known or not (rules 4 and 9)."""
    return step(s.said_abort(*there), hears(s, rules), then=[s.tombstone.plus(*there), s.stopped.plus(*there)])


def send_ack(s: PushState, rules: PushRules) -> Step:
    """ABORT_ACK: marked aborted, nothing outstanding, no write of unknown fate (rules 4 and 5)."""
    return step(
        s.current(rank, life),
        s.tombstone(*there),
        when(rules.poisoned_is_not_acked, ~s.poisoned(*there)),
        when(rules.ack_awaits_outstanding, is_idle(s)),
        then=[s.said_ack.plus(*there)],
    )


def hear_fenced(s: PushState, rules: PushRules) -> Step:
    """FENCED: our writes are kept out for ever. It frees what they read, and stops the attempt."""
    return step(
        s.said_fenced(*there),
        s.current(rank, life),
        then=[s.heard_fenced.plus(*there), s.stopped.plus(*there)],
    )


# ---------------------------------------------------------------- forgetting


def hear_closed(s: PushState, rules: PushRules) -> Step:
    """Rule 9: what decode has released needs no record any more. That it is closed is remembered instead."""

    def is_closed(k: Term, i: Term, t: Term) -> Formula:
        return all_of(k == rank, i == life, t == lease)

    return step(
        s.current(rank, life),
        s.said_closed(attempt_of(lease)),
        then=[s.closed.plus(*there), s.stopped.minus(*there), *_forget(s, is_closed)],
    )


def bury(s: PushState, rules: PushRules) -> Step:
    """A decode life is over as far as this rank is concerned: it is refused from now on, and all of it stops.

    Only records of writes that a transport may still report on are kept.
    """

    def is_buried(k: Term, i: Term, t: Term) -> Formula:
        return all_of(k == rank, i == life, decode_life_of(t) == decode_life)

    def is_gone(k: Term, i: Term, t: Term) -> Formula:
        return all_of(is_buried(k, i, t), is_settled(s, k, i, t))

    def is_stopped(k: Term, i: Term, t: Term) -> Formula:
        stops = any_of(s.stopped(k, i, t), all_of(is_buried(k, i, t), s.bound(k, i, t)))
        return all_of(stops, ~is_gone(k, i, t))

    return step(
        s.current(rank, life),
        then=[
            s.buried.plus(rank, life, decode_life),
            s.closed.minus_where(is_buried),
            s.stopped.becomes(is_stopped),
            *_forget(s, is_gone),
        ],
    )


def forget_buried(s: PushState, rules: PushRules) -> Step:
    """The last write of a buried attempt was reported on: its record goes too."""

    def is_gone(k: Term, i: Term, t: Term) -> Formula:
        return all_of(k == rank, i == life, t == lease)

    return step(
        s.current(rank, life),
        s.buried(rank, life, decode_life_of(lease)),
        is_settled(s, *there),
        then=[s.stopped.minus(*there), *_forget(s, is_gone)],
    )


def is_settled(s: PushState, k: Term, i: Term, t: Term) -> Formula:
    """Nothing is outstanding, and no write has an unknown fate."""
    return all_of(~s.poisoned(k, i, t), every(Write, lambda w: ~all_of(s.outstanding(w), is_of(w, k, i, t))))


def _forget(s: PushState, which: Value) -> list[Change]:
    return [
        s.bound.minus_where(which),
        s.bound_to.minus_where(lambda k, i, t, q: which(k, i, t)),
        s.tombstone.minus_where(which),
        s.poisoned.minus_where(which),
    ]


def crash_prefill(s: PushState, rules: PushRules) -> Step:
    """A life of a rank ends and a fresh one takes over. What it launched goes on landing, except plain stores."""
    unused = every(Rank, lambda k: all_of(~s.current(k, next_life), ~s.over(k, next_life)))
    unheard = every(Rank, Lease, lambda k, t: ~_knows(s, k, next_life, t))
    idle = every(Write, lambda w: implies(writer_life(w) == next_life, ~s.dequeued(w)))
    dies = [s.flying.minus_where(lambda w: all_of(writer_life(w) == life, plain_stores(life)))]
    return step(
        s.current(rank, life),
        unused,
        unheard,
        idle,
        then=[
            s.over.plus(rank, life),
            s.current.becomes(lambda k, i: either(k == rank, i == next_life, s.current(k, i))),
            *dies,
        ],
    )


def _knows(s: PushState, k: Term, i: Term, t: Term) -> Formula:
    """Something happened already in this life: a fresh life is one of which this is false."""
    told = any_of(s.granted(k, i, t), s.said_ack(k, i, t), s.said_done(k, i, t))
    marked = any_of(s.bound(k, i, t), s.stopped(k, i, t), s.tombstone(k, i, t), s.poisoned(k, i, t))
    ended = any_of(s.closed(k, i, t), s.heard_fenced(k, i, t), s.buried(k, i, decode_life_of(t)))
    return any_of(told, marked, ended)


# ---------------------------------------------------------------- source pages


def reuse_source(s: PushState, rules: PushRules) -> Step:
    """Rule 13: a source page gets other content when each write that was dequeued to read it is over, by a proof."""

    def is_free(w: Term) -> Formula:
        mine = (rank, life, target(w))
        proofs = [s.settled(w), s.source_fenced(w), s.heard_fenced(*mine)]
        proofs += [s.closed(*mine)] if rules.closed_frees_source else []
        excuses = [] if rules.failed_holds_source else [s.stopped(*mine)]
        excuses += [] if rules.poisoned_holds_source else [~s.outstanding(w)]
        return any_of(*proofs, *excuses)

    def reads(w: Term) -> Formula:
        return all_of(s.dequeued(w), source_page(w) == source, writer_life(w) == life)

    return step(
        s.current(rank, life),
        when(rules.fresh_source_memory, source_memory_of(source) == life),
        every(Write, lambda w: implies(reads(w), is_free(w))),
        then=[
            s.source_holds.becomes(lambda a, q: either(a == source, q == request, s.source_holds(a, q))),
        ],
    )


# ---------------------------------------------------------------- only in mutants


def ack_unknown(s: PushState, rules: PushRules) -> Step:
    """Never heard of it: ack, and write no tombstone."""
    return step(s.said_abort(*there), hears(s, rules), ~s.bound(*there), then=[s.said_ack.plus(*there)])


def ack_closed(s: PushState, rules: PushRules) -> Step:
    """Closed: ack, surely it is over."""
    return step(s.said_abort(*there), s.current(rank, life), s.closed(*there), then=[s.said_ack.plus(*there)])


def ack_for_old_life(s: PushState, rules: PushRules) -> Step:
    """The next life acks what only an earlier one was told."""
    return step(
        some(Life, lambda i: s.said_abort(rank, i, lease)),
        s.current(rank, life),
        then=[s.said_ack.plus(*there), s.tombstone.plus(*there), s.stopped.plus(*there)],
    )


def forget_committed(s: PushState, rules: PushRules) -> Step:
    """The record is dropped at COMMITTED."""
    gone = [s.bound.minus(*there), s.stopped.minus(*there), s.tombstone.minus(*there)]
    return step(s.said_committed(*there), s.current(rank, life), then=gone)


def reopen(s: PushState, rules: PushRules) -> Step:
    """An older list of open attempts is heard after a newer one, and believed."""
    return step(s.closed(*there), s.current(rank, life), then=[s.closed.minus(*there)])


ACTIONS = (
    *(bind, send_done, stop, hear_abort, send_ack, hear_fenced),
    *(hear_closed, bury, forget_buried, crash_prefill, reuse_source),
)

EXTRA = {
    "tombstone_before_ack": ack_unknown,
    "closed_is_silent": ack_closed,
    "acks_are_per_life": ack_for_old_life,
    "record_outlives_commit": forget_committed,
    "closed_stays_closed": reopen,
}
