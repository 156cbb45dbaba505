"""Push: what decode does (the receiver machine, its allocator and its prefix tree). One function, one action."""

from __future__ import annotations

from proof.logic import FALSE, Change, Formula, Step, Term, all_of, any_of, either, every, implies, some, step, when
from proof.push.rules import PushRules
from proof.push.state import (
    Lease,
    Life,
    Page,
    PushState,
    Rank,
    attempt,
    attempt_of,
    decode_life,
    decode_life_of,
    fills,
    in_lease,
    is_live,
    is_of,
    lease,
    life,
    life_of,
    memory_of,
    other,
    page,
    passed_over,
    plain_stores,
    rank,
    room_of,
    there,
)


def together(rules: PushRules, t: Term) -> Formula:
    """Rule 14: the leases of an attempt share every decision."""
    return attempt_of(t) == attempt_of(lease) if rules.ranks_decide_together else t == lease


def is_undecided(s: PushState, t: Term) -> Formula:
    return all_of(is_live(s, t), ~s.held(t), ~s.committed(t))


def is_proved(s: PushState, rules: PushRules, k: Term, i: Term, t: Term) -> Formula:
    """This rank, in this life, can place nothing in this lease any more (section 3; rule 8: DONE is an ack)."""
    done = s.done(k, i, t) if rules.done_is_an_ack else FALSE
    return any_of(s.acked(k, i, t), s.fenced(k, i, t), done)


# ---------------------------------------------------------------- the way to a commit


def reserve(s: PushState, rules: PushRules) -> Step:
    """Mint an attempt: the next number, and for every decode rank pages that nobody owns, writes or shares."""

    def is_free(p: Term, t: Term) -> Formula:
        owned = some(Lease, lambda u: all_of(is_live(s, u), in_lease(p, u)))
        twice = some(Lease, lambda u: all_of(attempt_of(u) == attempt, in_lease(p, u), u != t))
        own_memory = when(rules.fresh_memory, memory_of(p) == life_of(attempt))
        return all_of(own_memory, ~owned, ~twice, ~some(Lease, lambda u: s.prefix_tree(p, u)))

    return step(
        ~s.minted(attempt),
        ~s.decode_dead(life_of(attempt)),
        when(rules.minted_in_order, ~passed_over(s, attempt)),
        every(Page, Lease, lambda p, t: implies(all_of(attempt_of(t) == attempt, in_lease(p, t)), is_free(p, t))),
        then=[s.minted.plus(attempt)],
    )


def publish(s: PushState, rules: PushRules) -> Step:
    """PUBLISH leaves for a rank in one of its lives: from now on it may be writing."""
    return step(is_undecided(s, lease), then=[s.granted.plus(*there) if rules.grants_are_kept else _grant_anew(s)])


def _grant_anew(s: PushState) -> Change:
    """Only a mutant does that: the rank's earlier life is forgotten."""
    return s.granted.becomes(lambda k, i, t: either(all_of(k == rank, t == lease), i == life, s.granted(k, i, t)))


def hear_bound(s: PushState, rules: PushRules) -> Step:
    """BOUND: PUBLISH need not be sent again. Nothing that is freed depends on it."""
    return step(s.said_bound(*there), then=[s.heard_bound.plus(*there)])


def hear_done(s: PushState, rules: PushRules) -> Step:
    """Rule 8: DONE counts for the rank and the life that was granted the destination, held or not."""
    if rules.done_is_per_life:
        change = s.done.plus(*there)
    else:
        change = s.done.plus_where(lambda k, i, t: all_of(k == rank, t == lease))
    return step(
        is_live(s, lease),
        ~s.committed(lease),
        s.said_done(*there),
        when(rules.done_of_granted_only, _was_granted(s, per_life=rules.done_is_per_life)),
        then=[change],
    )


def _was_granted(s: PushState, *, per_life: bool) -> Formula:
    return s.granted(*there) if per_life else some(Life, lambda i: s.granted(rank, i, lease))


def commit(s: PushState, rules: PushRules) -> Step:
    """Rules 8, 11 and 14: DONE from every granted (rank, life), for every lease, and every page bears its own tag."""

    def is_done(t: Term) -> Formula:
        asked = every(Rank, Life, lambda k, i: implies(s.granted(k, i, t), s.done(k, i, t)))
        filled = every(Rank, lambda k: implies(fills(k, t), some(Life, lambda i: s.done(k, i, t))))
        return all_of(when(rules.commit_awaits_every_grant, asked), filled)

    def is_covered(t: Term) -> Formula:
        return every(Rank, Page, lambda k, p: implies(all_of(fills(k, t), in_lease(p, t)), s.tag(k, p, t)))

    return step(
        is_undecided(s, lease),
        every(Lease, lambda t: implies(together(rules, t), all_of(is_undecided(s, t), is_done(t)))),
        when(rules.coverage, every(Lease, lambda t: implies(together(rules, t), is_covered(t)))),
        then=[
            s.committed.plus_where(lambda t: together(rules, t)),
            s.said_committed.plus_where(lambda k, i, t: all_of(together(rules, t), s.granted(k, i, t))),
        ],
    )


def cache(s: PushState, rules: PushRules) -> Step:
    """Rule 12: a page of a committed lease enters the prefix tree, while its request goes on attending it."""
    return step(s.committed(lease), in_lease(page, lease), then=[s.prefix_tree.plus(page, lease)])


def finish(s: PushState, rules: PushRules) -> Step:
    """A committed request ends: its pages are free, except those that are in the prefix tree."""

    def ends(t: Term) -> Formula:
        return all_of(together(rules, t), s.committed(t))

    return step(
        s.committed(lease),
        then=[
            s.released.plus_where(ends),
            s.committed.minus_where(ends),
            s.shares.minus_where(lambda t, p: ends(t)),
        ],
    )


# ---------------------------------------------------------------- failing: abort, hold, proof, release


def abort(s: PushState, rules: PushRules) -> Step:
    """Rules 1 to 3: whatever ends an attempt holds every lease of it, and ABORT goes to all that were granted it."""

    def ends(t: Term) -> Formula:
        return all_of(together(rules, t), is_live(s, t), ~s.committed(t))

    return step(
        is_live(s, lease),
        ~s.committed(lease),
        then=[
            s.held.plus_where(ends),
            s.said_abort.plus_where(lambda k, i, t: all_of(ends(t), s.granted(k, i, t))),
        ],
    )


def hear_ack(s: PushState, rules: PushRules) -> Step:
    """Rules 6 and 7: an ack counts for the destination, attempt, rank and life that it names, once held."""
    if not rules.acks_are_per_attempt:
        matches = room_of(attempt_of(other)) == room_of(attempt_of(lease))
    elif not rules.acks_are_per_destination:
        matches = attempt_of(other) == attempt_of(lease)
    else:
        matches = other == lease
    everywhere = s.acked.plus_where(lambda k, i, t: all_of(k == rank, t == lease))
    return step(
        is_live(s, lease),
        when(rules.hold_before_ack, s.held(lease)),
        ~s.committed(lease),
        s.said_ack(rank, life, other),
        matches,
        _was_granted(s, per_life=rules.acks_are_per_life),
        then=[s.acked.plus(*there) if rules.acks_are_per_life else everywhere],
    )


def release(s: PushState, rules: PushRules) -> Step:
    """Section 3: a held lease is given back when every rank that was told of it is proved to be quiet."""

    def must_prove(k: Term, i: Term) -> Formula:
        return all_of(s.granted(k, i, lease), when(not rules.unbound_ranks_are_asked, s.heard_bound(k, i, lease)))

    once = is_live(s, lease) if rules.released_once else s.minted(attempt_of(lease))
    return step(
        once,
        s.held(lease),
        every(Rank, Life, lambda k, i: implies(must_prove(k, i), is_proved(s, rules, k, i, lease))),
        then=give_back(s),
    )


def give_back(s: PushState) -> list[Change]:
    return [
        s.released.plus(lease),
        s.released_twice.plus_where(lambda t: all_of(t == lease, s.released(t))),
        s.shares.minus_where(lambda t, p: t == lease),
    ]


def quarantine(s: PushState, rules: PushRules) -> Step:
    """The hold's deadline passed: out of circulation. The clock frees nothing."""
    return step(is_live(s, lease), s.held(lease), then=[s.quarantined.plus(lease)])


def fence(s: PushState, rules: PushRules) -> Step:
    """A fact at the receiver: nothing of this rank and life lands in this lease, now or later (see `launch`)."""
    return step(
        is_live(s, lease),
        s.held(lease),
        s.granted(*there),
        then=[
            s.fenced.plus(*there),
            s.said_fenced.plus(*there),
            s.flying.minus_where(lambda w: is_of(w, *there)),
        ],
    )


def fence_by_death(s: PushState, rules: PushRules) -> Step:
    """The writer's process is over. That suffices for plain CPU stores, and for nothing else (section 3)."""
    return step(
        is_live(s, lease),
        s.held(lease),
        s.granted(*there),
        s.over(rank, life),
        when(rules.death_fences_plain_stores_only, plain_stores(life)),
        then=[s.fenced.plus(*there), s.said_fenced.plus(*there)],
    )


# ---------------------------------------------------------------- shared pages, numbers, death


def share(s: PushState, rules: PushRules) -> Step:
    """An attempt under way attends pages of the prefix tree; they are never published as a destination."""
    return step(
        is_undecided(s, lease),
        s.prefix_tree(page, other),
        memory_of(page) == decode_life_of(lease),
        then=[s.shares.plus(lease, page)],
    )


def evict(s: PushState, rules: PushRules) -> Step:
    """A page that nobody shares leaves the prefix tree."""
    return step(
        ~some(Lease, lambda t: s.shares(t, page)),
        then=[s.prefix_tree.minus_where(lambda p, t: p == page)],
    )


def say_closed(s: PushState, rules: PushRules) -> Step:
    """Rule 9: any message may say that an attempt is open no more: all of it is released, or its number was skipped."""

    def is_over(t: Term) -> Formula:
        return s.released(t) if rules.quarantine_stays_open else any_of(s.released(t), s.quarantined(t))

    all_over = every(Lease, lambda t: implies(attempt_of(t) == attempt, is_over(t)))
    return step(
        ~s.decode_dead(life_of(attempt)),
        any_of(all_of(s.minted(attempt), all_over), all_of(~s.minted(attempt), passed_over(s, attempt))),
        then=[s.said_closed.plus(attempt)],
    )


def crash_decode(s: PushState, rules: PushRules) -> Step:
    """A decode life ends: nobody reads its memory any more, and its memory is nobody else's, ever (section 2)."""
    return step(
        ~s.decode_dead(decode_life),
        then=[
            s.decode_dead.plus(decode_life),
            s.committed.minus_where(lambda t: decode_life_of(t) == decode_life),
            s.prefix_tree.minus_where(lambda p, t: memory_of(p) == decode_life),
            s.shares.minus_where(lambda t, p: decode_life_of(t) == decode_life),
        ],
    )


# ---------------------------------------------------------------- only in mutants


def abort_without_hold(s: PushState, rules: PushRules) -> Step:
    """One way to fail that gives the pages back at once."""
    told = s.said_abort.plus_where(lambda k, i, t: all_of(t == lease, s.granted(k, i, t)))
    return step(is_undecided(s, lease), then=[*give_back(s), told])


def clock_frees(s: PushState, rules: PushRules) -> Step:
    """A clock, a flush, a compaction or a shutdown frees what is held."""
    return step(is_live(s, lease), s.held(lease), then=give_back(s))


def cache_failed(s: PushState, rules: PushRules) -> Step:
    """A page of a failed attempt enters the prefix tree when it is released."""
    owned = some(Lease, lambda t: all_of(is_live(s, t), in_lease(page, t)))
    return step(
        s.held(lease),
        s.released(lease),
        in_lease(page, lease),
        ~owned,
        ~s.decode_dead(memory_of(page)),
        then=[s.prefix_tree.plus(page, lease)],
    )


ACTIONS = (
    *(reserve, publish, hear_bound, hear_done, commit, cache, finish),
    *(abort, hear_ack, release, quarantine, fence, fence_by_death),
    *(share, evict, say_closed, crash_decode),
)

EXTRA = {
    "every_failure_holds": abort_without_hold,
    "no_clock_frees": clock_frees,
    "only_committed_is_cached": cache_failed,
}
