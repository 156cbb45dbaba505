"""Push: what must hold (PROTOCOL section 7, same names). One function, one invariant. The rest holds them up.

Section 7's `no_leak` and `no_stub` are not here: the first is about what happens at last, the second about requests
that this model never sees. Explorer and tests check them.
"""

from __future__ import annotations

from proof.logic import Formula, Term, all_of, any_of, every, implies, some
from proof.push.state import (
    Lease,
    Page,
    PushState,
    Rank,
    Write,
    attempt_of,
    decode_life_of,
    fills,
    holds_own,
    in_lease,
    is_live,
    payload,
    place_of,
    source_page,
    target,
    target_page,
)


def no_wild_write(s: PushState) -> Formula:
    """A write in flight hits no page of another live lease, and its own lease is live (or its decode life is over)."""
    own = every(
        Write,
        Lease,
        lambda w, u: implies(all_of(s.flying(w), is_live(s, u), in_lease(target_page(w), u)), u == target(w)),
    )
    kept = every(
        Write, lambda w: implies(s.flying(w), any_of(is_live(s, target(w)), s.decode_dead(decode_life_of(target(w)))))
    )
    return all_of(own, kept)


def no_wild_write_under_readers(s: PushState) -> Formula:
    """Nor a page that is attended already: committed, or in the prefix tree."""
    return every(
        Write,
        Lease,
        lambda w, u: implies(s.flying(w), all_of(~s.committed(target(w)), ~s.prefix_tree(target_page(w), u))),
    )


def no_alias(s: PushState) -> Formula:
    """A page of a live lease is in no other live lease, nor in the prefix tree, unless this lease committed it."""

    def is_alone(p: Term, t: Term, u: Term) -> Formula:
        mine = all_of(is_live(s, t), in_lease(p, t))
        alone = implies(all_of(is_live(s, u), in_lease(p, u)), t == u)
        unshared = implies(s.prefix_tree(p, u), all_of(t == u, s.committed(t)))
        return implies(mine, all_of(alone, unshared))

    return every(Page, Lease, Lease, is_alone)


def read_own(s: PushState) -> Formula:
    """What a committed attempt attends, at every decode rank, is whole and is its own request's context."""

    def is_right(t: Term, u: Term, k: Term, p: Term) -> Formula:
        attended = all_of(s.committed(t), attempt_of(u) == attempt_of(t), fills(k, u), in_lease(p, u))
        return implies(attended, holds_own(s, k, p, u))

    return every(Lease, Lease, Rank, Page, is_right)


def read_own_shared(s: PushState) -> Formula:
    """A page of the prefix tree is whole and holds the context that it was filled for."""
    return every(
        Rank, Page, Lease, lambda k, p, t: implies(all_of(s.prefix_tree(p, t), fills(k, t)), holds_own(s, k, p, t))
    )


def read_own_kept(s: PushState) -> Formula:
    """A shared page stays in the prefix tree while somebody attends it."""
    return every(Lease, Page, lambda t, p: implies(s.shares(t, p), some(Lease, lambda u: s.prefix_tree(p, u))))


def no_early_ack(s: PushState) -> Formula:
    """A rank that acked, or said DONE, has nothing in flight for that attempt, and will have nothing."""

    def is_quiet(w: Term) -> Formula:
        uncounted = any_of(~s.outstanding(w), s.fenced(*place_of(w)))
        return implies(any_of(s.said_ack(*place_of(w)), s.said_done(*place_of(w))), all_of(~s.flying(w), uncounted))

    return every(Write, is_quiet)


def no_wild_read(s: PushState) -> Formula:
    """The source page of a write that can still read and land holds what the write is meant to carry."""
    return every(
        Write, lambda w: implies(all_of(s.flying(w), s.reading(w)), s.source_holds(source_page(w), payload(w)))
    )


def no_poison(s: PushState) -> Formula:
    """What is in the prefix tree was committed: no page of a failed or unfinished attempt is there."""

    def was_committed(p: Term, t: Term) -> Formula:
        ended = all_of(s.released(t), ~s.held(t))
        return implies(s.prefix_tree(p, t), any_of(s.committed(t), ended))

    return every(Page, Lease, was_committed)


def once(s: PushState) -> Formula:
    """Each lease is released once."""
    return every(Lease, lambda t: ~s.released_twice(t))


def one_decision(s: PushState) -> Formula:
    """Rule 14: the leases of an attempt are committed together or not at all."""
    return every(
        Lease, Lease, lambda t, u: implies(all_of(s.committed(t), attempt_of(t) == attempt_of(u)), s.committed(u))
    )


SAFETY = (
    *(no_wild_write, no_wild_write_under_readers, no_alias, read_own, read_own_shared, read_own_kept),
    *(no_early_ack, no_wild_read, no_poison, once, one_decision),
)
