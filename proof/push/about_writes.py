"""Push: what the invariants of section 7 rest on, about writes and tags. One function, one invariant."""

from __future__ import annotations

from proof.logic import Formula, Term, all_of, any_of, every, implies, some
from proof.push.state import (
    Lease,
    Page,
    PushState,
    Rank,
    Request,
    Write,
    attempt_of,
    has_own_digest,
    holds_own,
    in_lease,
    is_live,
    payload,
    place_of,
    plain_stores,
    source_memory_of,
    source_page,
    target,
    target_page,
    writer,
    writer_life,
)


def dequeued_is_granted(s: PushState) -> Formula:
    """Every write goes to a page of a lease that its rank was granted, from own memory, with that lease's context."""

    def is_granted(w: Term) -> Formula:
        k, i, t = place_of(w)
        own = all_of(source_memory_of(source_page(w)) == i, has_own_digest(payload(w), t))
        return implies(s.dequeued(w), all_of(s.granted(k, i, t), in_lease(target_page(w), t), own))

    return every(Write, is_granted)


def dequeued_by_a_life(s: PushState) -> Formula:
    """Whoever dequeued a write lives, or has lived."""
    return every(
        Write,
        lambda w: implies(
            s.dequeued(w), any_of(s.current(writer(w), writer_life(w)), s.over(writer(w), writer_life(w)))
        ),
    )


def dequeued_is_counted(s: PushState) -> Formula:
    """Rule 4: between dequeue and launch a write is counted."""
    return every(Write, lambda w: implies(all_of(s.dequeued(w), ~s.launched(w)), s.outstanding(w)))


def dequeued_keeps_source(s: PushState) -> Formula:
    """Rule 13: until its launch, what a write will read stays, unless it is fenced."""

    def keeps(w: Term) -> Formula:
        waiting = all_of(s.dequeued(w), ~s.launched(w), s.current(writer(w), writer_life(w)), ~s.fenced(*place_of(w)))
        return implies(waiting, s.source_holds(source_page(w), payload(w)))

    return every(Write, keeps)


def write_in_order(s: PushState) -> Formula:
    """Dequeued, launched, read, placed or lost, settled."""

    def is_in_order(w: Term) -> Formula:
        in_air = any_of(s.flying(w), s.reading(w), s.placed(w), s.settled(w), s.source_fenced(w), s.torn(w))
        return all_of(
            implies(any_of(s.launched(w), s.outstanding(w)), s.dequeued(w)),
            implies(in_air, s.launched(w)),
            implies(any_of(s.placed(w), s.settled(w)), all_of(~s.flying(w), ~s.reading(w))),
            implies(s.source_fenced(w), ~s.reading(w)),
        )

    return every(Write, is_in_order)


def flying_is_counted(s: PushState) -> Formula:
    """Rules 4 and 5: what may still land is counted, or poisons its attempt."""
    return every(Write, lambda w: implies(s.flying(w), any_of(s.outstanding(w), s.poisoned(*place_of(w)))))


def fenced_is_out(s: PushState) -> Formula:
    """Section 3: a fence is permanent."""
    return every(Write, lambda w: ~all_of(s.flying(w), s.fenced(*place_of(w))))


def plain_stores_end(s: PushState) -> Formula:
    """Section 3: plain CPU stores end with the process that makes them."""
    return every(Write, lambda w: ~all_of(s.flying(w), s.over(writer(w), writer_life(w)), plain_stores(writer_life(w))))


def carries_own(s: PushState) -> Formula:
    """What a flying write has read is what it is meant to carry."""

    def is_own(w: Term, q: Term) -> Formula:
        return implies(s.carries(w, q), all_of(s.launched(w), ~s.reading(w), implies(s.flying(w), q == payload(w))))

    return every(Write, Request, is_own)


def carries_something(s: PushState) -> Formula:
    """A flying write that has read its source carries something."""
    return every(
        Write,
        lambda w: implies(all_of(s.flying(w), ~s.reading(w)), some(Request, lambda q: s.carries(w, q))),
    )


# ---------------------------------------------------------------- tags


def tag_is_minted(s: PushState) -> Formula:
    """A tag beside a page is that of a minted lease."""
    return every(Rank, Page, Lease, lambda k, p, t: implies(s.tag(k, p, t), s.minted(attempt_of(t))))


def tag_covers(s: PushState) -> Formula:
    """Rule 11: beside the tag of a live lease lies its own context, whole, or a write of this lease tore it."""

    def is_covered(k: Term, p: Term, t: Term) -> Formula:
        torn = some(Write, lambda w: all_of(s.torn(w), writer(w) == k, target(w) == t, target_page(w) == p))
        stamped = all_of(s.tag(k, p, t), is_live(s, t), in_lease(p, t))
        return implies(stamped, any_of(holds_own(s, k, p, t), torn))

    return every(Rank, Page, Lease, is_covered)


def torn_is_not_done(s: PushState) -> Formula:
    """A rank that said DONE tore nothing; a torn write is counted, or its attempt can never say DONE any more."""

    def is_not_done(w: Term) -> Formula:
        no_done = any_of(s.outstanding(w), s.stopped(*place_of(w)), ~s.bound(*place_of(w)))
        return implies(s.torn(w), all_of(~s.placed(w), s.dequeued(w), ~s.said_done(*place_of(w)), no_done))

    return every(Write, is_not_done)


ABOUT_WRITES = (
    *(dequeued_is_granted, dequeued_by_a_life, dequeued_is_counted, dequeued_keeps_source, write_in_order),
    *(flying_is_counted, fenced_is_out, plain_stores_end, carries_own, carries_something),
    *(tag_is_minted, tag_covers, torn_is_not_done),
)
