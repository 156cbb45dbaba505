"""Staged landing: what decode does, and what anybody may do to its staging buffers. One function, one action."""

from __future__ import annotations

from dataclasses import dataclass

from proof.logic import Change, Formula, Step, Term, all_of, either, every, implies, some, step, when
from proof.staged.state import (
    Lease,
    Request,
    StagedState,
    Word,
    cell,
    has_own_digest,
    has_word,
    is_live,
    is_staging,
    is_tag,
    lease,
    private_at,
    rank,
    request,
    slice_of,
    staged_at,
    truth,
    value,
    word,
)


@dataclass(frozen=True)
class StagedRules:
    """True is staged landing as section 6 has it."""

    reads_the_copy: bool = True  # else: verified and attended in place
    verifies_the_copy: bool = True  # else: verified in the buffer, then copied
    digest_covers_payload: bool = True  # else: only a tag is looked at
    digest_covers_identity: bool = True  # else: any request's consistent content passes
    copy_ends_before_check: bool = True
    pool_is_private: bool = True  # no transport is told of the pool, and no buffer is ever turned into pool memory
    pool_has_one_owner: bool = True  # the allocator's no_alias


def place(rules: StagedRules, t: Term, w: Term) -> Term:
    """Where the word is attended."""
    return private_at(t, w) if rules.reads_the_copy else staged_at(t, w)


def checked(rules: StagedRules, t: Term, w: Term) -> Term:
    """Where the word is checked."""
    return private_at(t, w) if rules.reads_the_copy and rules.verifies_the_copy else staged_at(t, w)


def reserve(s: StagedState, rules: StagedRules) -> Step:
    """Pool cells that no live lease has, each for one word. Buffers may be anybody's, and still be written by them."""

    def is_alone(w: Term) -> Formula:
        mine = private_at(lease, w)
        others = some(Lease, Word, lambda t, v: all_of(is_live(s, t), has_word(t, v), private_at(t, v) == mine))
        return all_of(~others, every(Word, lambda v: implies(private_at(lease, v) == mine, v == w)))

    return step(
        ~s.minted(lease),
        when(rules.pool_has_one_owner, every(Word, lambda w: implies(has_word(lease, w), is_alone(w)))),
        when(
            rules.pool_is_private, every(Word, lambda w: implies(has_word(lease, w), ~is_staging(private_at(lease, w))))
        ),
        then=[s.minted.plus(lease)],
    )


def land(s: StagedState, rules: StagedRules) -> Step:
    """Any value lands in any staging cell, at any time: late, torn, of another attempt, out of reused memory."""
    return step(is_staging(cell), then=[put(s, cell, value)])


def put(s: StagedState, where: Term, what: Term) -> Change:
    return s.holds.becomes(lambda c, v: either(c == where, v == what, s.holds(c, v)))


def hear_done(s: StagedState, rules: StagedRules) -> Step:
    """A DONE tells a rank's payload digest. It counts if its request digest is the lease's own (section 2)."""
    own = when(rules.digest_covers_identity, has_own_digest(request, lease))
    return step(is_live(s, lease), own, then=[s.told.plus(rank, lease, request)])


def copy(s: StagedState, rules: StagedRules) -> Step:
    """One word goes from the buffer to the lease's private cell, as it happens to be at this moment."""
    return step(
        is_live(s, lease),
        has_word(lease, word),
        when(rules.copy_ends_before_check and rules.verifies_the_copy, ~s.verified(lease)),
        ~s.committed(lease),
        s.holds(staged_at(lease, word), value),
        then=[put(s, private_at(lease, word), value)],
    )


def verify(s: StagedState, rules: StagedRules) -> Step:
    """The digest equals what DONE told: what is checked is, word by word, what prefill computed (no collisions)."""

    def is_right(w: Term) -> Formula:
        looked_at = all_of(has_word(lease, w), when(not rules.digest_covers_payload, is_tag(w)))
        told = some(
            Request,
            lambda q: all_of(s.told(slice_of(w), lease, q), s.holds(checked(rules, lease, w), truth(q, w))),
        )
        return implies(looked_at, told)

    return step(is_live(s, lease), every(Word, is_right), then=[s.verified.plus(lease)])


def commit(s: StagedState, rules: StagedRules) -> Step:
    """Verified: the request attends its cells from now on."""

    def is_attended(t: Term, w: Term, c: Term) -> Formula:
        return all_of(t == lease, has_word(t, w), c == place(rules, t, w))

    return step(
        is_live(s, lease),
        s.verified(lease),
        then=[s.committed.plus(lease), s.attends.plus_where(is_attended)],
    )


def release(s: StagedState, rules: StagedRules) -> Step:
    """The lease and its buffer are given back at once, committed or not, whatever is still in the air."""
    return step(
        is_live(s, lease),
        then=[
            s.released.plus(lease),
            s.committed.minus(lease),
            s.verified.minus(lease),
            s.attends.minus_where(lambda t, w, c: t == lease),
        ],
    )


ACTIONS = (reserve, land, hear_done, copy, verify, commit, release)
