"""Staged landing: what must hold, and what it rests on. One function, one invariant."""

from __future__ import annotations

from proof.logic import Formula, Term, all_of, any_of, every, implies, some
from proof.staged.state import (
    Cell,
    Lease,
    Rank,
    Request,
    StagedState,
    Value,
    Word,
    has_own_digest,
    has_word,
    is_live,
    is_staging,
    private_at,
    truth,
)


def read_own(s: StagedState) -> Formula:
    """Every word that a committed request attends is what prefill computed for a request with its own digest."""

    def is_own(t: Term, w: Term, c: Term) -> Formula:
        right = some(Request, lambda q: all_of(has_own_digest(q, t), s.holds(c, truth(q, w))))
        return implies(s.attends(t, w, c), right)

    return every(Lease, Word, Cell, is_own)


def one_value(s: StagedState) -> Formula:
    """A cell holds one value at a time."""
    return every(Cell, Value, Value, lambda c, v, u: implies(all_of(s.holds(c, v), s.holds(c, u)), v == u))


def no_wild_write(s: StagedState) -> Formula:
    """No remote write reaches a live lease's pool cells."""
    return every(
        Lease, Word, lambda t, w: implies(all_of(is_live(s, t), has_word(t, w)), ~is_staging(private_at(t, w)))
    )


def no_alias(s: StagedState) -> Formula:
    """A pool cell is one word of one live lease."""

    def is_alone(t: Term, u: Term, w: Term, v: Term) -> Formula:
        both = all_of(
            is_live(s, t), is_live(s, u), has_word(t, w), has_word(u, v), private_at(t, w) == private_at(u, v)
        )
        return implies(both, all_of(t == u, w == v))

    return every(Lease, Lease, Word, Word, is_alone)


def in_use_is_live(s: StagedState) -> Formula:
    """What is verified or committed is live; what is committed was verified; what is released was minted."""

    def is_in_use(t: Term) -> Formula:
        used = implies(any_of(s.verified(t), s.committed(t)), is_live(s, t))
        return all_of(used, implies(s.committed(t), s.verified(t)), implies(s.released(t), s.minted(t)))

    return every(Lease, is_in_use)


def attended_is_private(s: StagedState) -> Formula:
    """A committed request attends its private copy, and nothing else."""

    def is_private(t: Term, w: Term, c: Term) -> Formula:
        return implies(s.attends(t, w, c), all_of(s.committed(t), has_word(t, w), c == private_at(t, w)))

    return every(Lease, Word, Cell, is_private)


def told_is_own(s: StagedState) -> Formula:
    """Section 2: a DONE counts for a request with the lease's own digest only."""
    return every(Rank, Lease, Request, lambda k, t, q: implies(s.told(k, t, q), has_own_digest(q, t)))


def verified_is_own(s: StagedState) -> Formula:
    """From the check on, the private copy is the request's own, word by word, and stays it."""

    def is_own(t: Term, w: Term) -> Formula:
        right = some(Request, lambda q: all_of(has_own_digest(q, t), s.holds(private_at(t, w), truth(q, w))))
        return implies(all_of(s.verified(t), has_word(t, w)), right)

    return every(Lease, Word, is_own)


SAFETY = (read_own, no_wild_write, no_alias)
SUPPORTING = (one_value, in_use_is_live, attended_is_private, told_is_own, verified_is_own)
