"""Push: what the invariants of section 7 rest on, at decode and at prefill. One function, one invariant."""

from __future__ import annotations

from proof.logic import Formula, Term, all_of, any_of, every, implies
from proof.push.state import (
    Attempt,
    Lease,
    Life,
    Page,
    PushState,
    Rank,
    Request,
    Source,
    Write,
    attempt_of,
    decode_life_of,
    has_own_digest,
    in_lease,
    is_live,
    memory_of,
    passed_over,
    place_of,
    writer,
    writer_life,
)

# ---------------------------------------------------------------- decode


def only_minted(s: PushState) -> Formula:
    """Nothing happens to a lease before its attempt is minted."""

    def is_minted(t: Term) -> Formula:
        return implies(any_of(s.held(t), s.committed(t), s.released(t)), s.minted(attempt_of(t)))

    return every(Lease, is_minted)


def committed_is_live(s: PushState) -> Formula:
    """A committed lease is in use: not released, not held, its decode life not over."""
    return every(Lease, lambda t: implies(s.committed(t), all_of(is_live(s, t), ~s.held(t))))


def granted_is_minted(s: PushState) -> Formula:
    """PUBLISH speaks of attempts that exist."""
    return every(Rank, Life, Lease, lambda k, i, t: implies(s.granted(k, i, t), s.minted(attempt_of(t))))


def abort_is_held(s: PushState) -> Formula:
    """Rule 1: whoever hears ABORT was granted the lease, and the lease is held already."""
    return every(
        Rank, Life, Lease, lambda k, i, t: implies(s.said_abort(k, i, t), all_of(s.granted(k, i, t), s.held(t)))
    )


def acked_was_said(s: PushState) -> Formula:
    """Rules 6 and 7: a counted ack was said by this rank, in this life, about this lease."""
    return every(
        Rank, Life, Lease, lambda k, i, t: implies(s.acked(k, i, t), all_of(s.granted(k, i, t), s.said_ack(k, i, t)))
    )


def done_was_said(s: PushState) -> Formula:
    """Rule 8: a counted DONE was said by this rank, in this life, about this lease."""
    return every(
        Rank, Life, Lease, lambda k, i, t: implies(s.done(k, i, t), all_of(s.granted(k, i, t), s.said_done(k, i, t)))
    )


def fenced_is_held(s: PushState) -> Formula:
    """Only held leases are fenced."""
    return every(Rank, Life, Lease, lambda k, i, t: implies(s.fenced(k, i, t), s.held(t)))


def fence_was_proved(s: PushState) -> Formula:
    """FENCED is said, and heard, of destinations that are fenced."""
    return every(
        Rank,
        Life,
        Lease,
        lambda k, i, t: all_of(
            implies(s.heard_fenced(k, i, t), s.said_fenced(k, i, t)), implies(s.said_fenced(k, i, t), s.fenced(k, i, t))
        ),
    )


def committed_after_done(s: PushState) -> Formula:
    """Rule 8: a committed lease has the DONE of every rank and life that was granted it; COMMITTED answers a DONE."""
    return every(
        Rank,
        Life,
        Lease,
        lambda k, i, t: all_of(
            implies(all_of(s.committed(t), s.granted(k, i, t)), s.done(k, i, t)),
            implies(s.said_committed(k, i, t), s.said_done(k, i, t)),
        ),
    )


def released_is_proved(s: PushState) -> Formula:
    """Section 3: every rank and life that was granted a released lease is proved to be quiet."""

    def is_proved(k: Term, i: Term, t: Term) -> Formula:
        proofs = any_of(s.acked(k, i, t), s.fenced(k, i, t), s.done(k, i, t))
        return implies(all_of(s.released(t), s.granted(k, i, t)), proofs)

    return every(Rank, Life, Lease, is_proved)


def closed_is_over(s: PushState) -> Formula:
    """Rule 9: an attempt that is said to be closed is released everywhere, or will never be minted."""

    def is_over(a: Term) -> Formula:
        released = every(Lease, lambda t: implies(attempt_of(t) == a, s.released(t)))
        skipped = all_of(~s.minted(a), passed_over(s, a))
        return implies(s.said_closed(a), any_of(all_of(s.minted(a), released), skipped))

    return every(Attempt, is_over)


def lease_is_own_memory(s: PushState) -> Formula:
    """Section 2: a minted lease has pages of its own decode life only."""
    return every(
        Page,
        Lease,
        lambda p, t: implies(all_of(s.minted(attempt_of(t)), in_lease(p, t)), memory_of(p) == decode_life_of(t)),
    )


def tree_is_alive(s: PushState) -> Formula:
    """The prefix tree lists pages of minted leases, in the memory of decode lives that are not over."""
    return every(
        Page,
        Lease,
        lambda p, t: implies(
            s.prefix_tree(p, t), all_of(in_lease(p, t), s.minted(attempt_of(t)), ~s.decode_dead(memory_of(p)))
        ),
    )


def shared_is_own_memory(s: PushState) -> Formula:
    """A request shares pages of its own decode life."""
    return every(Lease, Page, lambda t, p: implies(s.shares(t, p), memory_of(p) == decode_life_of(t)))


# ---------------------------------------------------------------- prefill


def one_life_of_a_rank(s: PushState) -> Formula:
    """A rank has one current life, a life belongs to one rank, and a life that is over is nobody's current one."""
    return all_of(
        every(Rank, Life, Life, lambda k, i, j: implies(all_of(s.current(k, i), s.current(k, j)), i == j)),
        every(Rank, Rank, Life, lambda k, h, i: implies(all_of(s.current(k, i), s.current(h, i)), k == h)),
        every(Rank, Rank, Life, lambda k, h, i: ~all_of(s.current(k, i), s.over(h, i))),
    )


def dequeued_is_recorded(s: PushState) -> Formula:
    """Rule 9: what a living rank has dequeued is in a record, or it remembers why there is none any more."""

    def is_recorded(w: Term) -> Formula:
        k, i, t = place_of(w)
        remembered = any_of(s.bound(k, i, t), s.closed(k, i, t), s.buried(k, i, decode_life_of(t)))
        return implies(all_of(s.dequeued(w), s.current(k, i)), remembered)

    return every(Write, is_recorded)


def outstanding_is_bound(s: PushState) -> Formula:
    """Rule 9: what is counted and not kept out by a fence has its record still, a buried decode life's too."""

    def is_bound(w: Term) -> Formula:
        counted = all_of(s.outstanding(w), s.current(writer(w), writer_life(w)), ~s.fenced(*place_of(w)))
        return implies(counted, s.bound(*place_of(w)))

    return every(Write, is_bound)


def bound_was_granted(s: PushState) -> Formula:
    """A record exists only of what was published to this rank in this life."""
    return every(Rank, Life, Lease, lambda k, i, t: implies(s.bound(k, i, t), s.granted(k, i, t)))


def closed_was_said(s: PushState) -> Formula:
    """What a rank takes for closed, decode has closed."""
    return every(Rank, Life, Lease, lambda k, i, t: implies(s.closed(k, i, t), s.said_closed(attempt_of(t))))


def closed_has_no_record(s: PushState) -> Formula:
    """Rule 9: a closed attempt has no record, and gets none again."""

    def is_forgotten(k: Term, i: Term, t: Term) -> Formula:
        record = any_of(s.bound(k, i, t), s.tombstone(k, i, t), s.poisoned(k, i, t))
        return implies(s.closed(k, i, t), ~record)

    return every(Rank, Life, Lease, is_forgotten)


def buried_is_stopped(s: PushState) -> Formula:
    """Rule 9: what is left of a buried decode life launches nothing more, and gets no record again."""

    def is_stopped(k: Term, i: Term, t: Term) -> Formula:
        return implies(all_of(s.buried(k, i, decode_life_of(t)), s.bound(k, i, t)), s.stopped(k, i, t))

    return every(Rank, Life, Lease, is_stopped)


def tombstone_stops(s: PushState) -> Formula:
    """Rule 4: an aborted attempt launches nothing more, and ABORT was really said."""
    return every(
        Rank,
        Life,
        Lease,
        lambda k, i, t: implies(s.tombstone(k, i, t), all_of(s.stopped(k, i, t), s.said_abort(k, i, t))),
    )


def poison_stops(s: PushState) -> Formula:
    """Rule 5: a poisoned attempt is recorded and stopped."""
    return every(
        Rank,
        Life,
        Lease,
        lambda k, i, t: implies(s.poisoned(k, i, t), all_of(s.bound(k, i, t), s.stopped(k, i, t))),
    )


def end_is_remembered(s: PushState) -> Formula:
    """Rule 9: what a rank acked or said DONE of stays stopped, and a living rank knows that it ended."""

    def is_remembered(k: Term, i: Term, t: Term) -> Formula:
        known = any_of(s.bound(k, i, t), s.tombstone(k, i, t), s.closed(k, i, t), s.buried(k, i, decode_life_of(t)))
        return implies(
            any_of(s.said_ack(k, i, t), s.said_done(k, i, t)),
            all_of(
                s.granted(k, i, t),
                implies(s.bound(k, i, t), s.stopped(k, i, t)),
                implies(s.current(k, i), known),
            ),
        )

    return every(Rank, Life, Lease, is_remembered)


def done_is_clean(s: PushState) -> Formula:
    """Rule 5: who said DONE is not poisoned, unless the destination was fenced."""
    return every(
        Rank,
        Life,
        Lease,
        lambda k, i, t: implies(s.said_done(k, i, t), any_of(s.fenced(k, i, t), ~s.poisoned(k, i, t))),
    )


def bound_to_own_digest(s: PushState) -> Formula:
    """Section 2: PUBLISH met a request with the same digest."""
    return every(Rank, Life, Lease, Request, lambda k, i, t, q: implies(s.bound_to(k, i, t, q), has_own_digest(q, t)))


def one_source_content(s: PushState) -> Formula:
    """A source page holds one content at a time."""
    return every(
        Source, Request, Request, lambda a, q, r: implies(all_of(s.source_holds(a, q), s.source_holds(a, r)), q == r)
    )


ABOUT_RECORDS = (
    *(only_minted, committed_is_live, granted_is_minted, abort_is_held, acked_was_said, done_was_said),
    *(fenced_is_held, fence_was_proved, committed_after_done, released_is_proved, closed_is_over),
    *(lease_is_own_memory, tree_is_alive, shared_is_own_memory),
    *(
        one_life_of_a_rank,
        dequeued_is_recorded,
        outstanding_is_bound,
        bound_was_granted,
        closed_was_said,
        closed_has_no_record,
    ),
    *(buried_is_stopped, tombstone_stops, poison_stops, end_is_remembered, done_is_clean, bound_to_own_digest),
    *(one_source_content,),
)
