"""Pull: what must hold (PROTOCOL section 7, same names), and what it rests on. One function, one invariant."""

from __future__ import annotations

from proof.logic import Formula, Term, all_of, any_of, every, implies, some
from proof.pull.state import (
    Lease,
    Life,
    Page,
    PullState,
    Rank,
    Read,
    Request,
    Source,
    in_lease,
    is_live,
    lends,
    life_of,
    memory_of,
    reader,
    source_memory_of,
    source_page,
    target_page,
    wanted,
    window_of,
)


def no_wild_write(s: PullState) -> Formula:
    """A read in flight lands in a live lease's own page (or its decode life is over), and nobody attends that yet."""

    def is_expected(x: Term, u: Term) -> Formula:
        hits = all_of(is_live(s, u), in_lease(target_page(x), u))
        kept = any_of(is_live(s, reader(x)), s.decode_dead(life_of(reader(x))))
        return implies(s.flying(x), all_of(implies(hits, u == reader(x)), kept, ~s.committed(reader(x))))

    return every(Read, Lease, is_expected)


def no_wild_read(s: PullState) -> Formula:
    """What a flying read has yet to read holds its request's context, or is not served, or the reader is dead."""

    def is_own(x: Term) -> Formula:
        own = s.source_holds(source_page(x), wanted(reader(x)))
        return implies(
            all_of(s.flying(x), s.reading(x)),
            any_of(own, s.revoked(*window_of(x)), s.decode_dead(life_of(reader(x)))),
        )

    return every(Read, is_own)


def read_own(s: PullState) -> Formula:
    """Every page of a committed lease bears its tag and its own request's context."""

    def is_right(p: Term, t: Term) -> Formula:
        own = every(Request, lambda q: implies(s.page_holds(p, t, q), q == wanted(t)))
        return implies(
            all_of(s.committed(t), in_lease(p, t)), all_of(some(Request, lambda q: s.page_holds(p, t, q)), own)
        )

    return every(Page, Lease, is_right)


def no_alias(s: PullState) -> Formula:
    """A page is in one live lease at most."""

    def is_alone(p: Term, t: Term, u: Term) -> Formula:
        return implies(all_of(is_live(s, t), is_live(s, u), in_lease(p, t), in_lease(p, u)), t == u)

    return every(Page, Lease, Lease, is_alone)


def no_early_ack(s: PullState) -> Formula:
    """An attempt that was acked or committed has nothing in flight; a closed endpoint lets nothing in."""

    def is_quiet(x: Term) -> Formula:
        ended = any_of(s.said_ack(reader(x)), s.said_committed(reader(x)))
        quiet = implies(ended, all_of(~s.flying(x), ~s.outstanding(x)))
        return all_of(quiet, implies(s.said_fenced(reader(x)), ~s.flying(x)))

    return every(Read, is_quiet)


# ---------------------------------------------------------------- supporting


def only_minted(s: PullState) -> Formula:
    """Nothing happens to a lease before it is minted."""

    def is_minted(t: Term) -> Formula:
        return implies(any_of(s.held(t), s.committed(t), s.stopped(t), s.released(t)), s.minted(t))

    return every(Lease, is_minted)


def offered_is_minted(s: PullState) -> Formula:
    """Prefill lends to leases that exist."""
    return every(Rank, Life, Lease, lambda k, i, t: implies(s.offered(k, i, t), s.minted(t)))


def committed_is_live(s: PullState) -> Formula:
    """A committed lease is in use, not held, and was told to prefill."""
    return every(Lease, lambda t: implies(s.committed(t), all_of(is_live(s, t), ~s.held(t), s.said_committed(t))))


def end_stops(s: PullState) -> Formula:
    """What was acked or closed is held; what is held, poisoned or committed launches nothing; no commit is poisoned."""

    def is_stopped(t: Term) -> Formula:
        return all_of(
            implies(any_of(s.said_ack(t), s.said_fenced(t)), s.held(t)),
            implies(any_of(s.held(t), s.poisoned(t), s.said_committed(t)), s.stopped(t)),
            implies(s.said_committed(t), ~s.poisoned(t)),
        )

    return every(Lease, is_stopped)


def released_is_proved(s: PullState) -> Formula:
    """Section 3: a released lease was acked, closed or committed."""

    def is_proved(t: Term) -> Formula:
        return implies(s.released(t), any_of(s.said_ack(t), s.said_fenced(t), s.said_committed(t)))

    return every(Lease, is_proved)


def closed_is_over(s: PullState) -> Formula:
    """Rule 9: what decode calls closed was given back."""
    return every(Lease, lambda t: implies(s.said_closed(t), s.released(t)))


def lease_is_own_memory(s: PullState) -> Formula:
    """Section 2: a minted lease has pages of its own decode life only."""
    return every(Page, Lease, lambda p, t: implies(all_of(s.minted(t), in_lease(p, t)), memory_of(p) == life_of(t)))


def flying_is_counted(s: PullState) -> Formula:
    """Rules 4 and 5: what may still land is counted, or poisons its attempt."""
    return every(Read, lambda x: implies(s.flying(x), any_of(s.outstanding(x), s.poisoned(reader(x)))))


def read_in_order(s: PullState) -> Formula:
    """Launched into a minted lease out of an open window; read, placed or lost."""

    def is_in_order(x: Term) -> Formula:
        begun = any_of(s.flying(x), s.reading(x), s.outstanding(x), s.placed(x))
        lent = all_of(s.offered(*window_of(x)), lends(*window_of(x), source_page(x)))
        return all_of(
            implies(begun, s.launched(x)),
            implies(s.placed(x), all_of(~s.flying(x), ~s.reading(x))),
            implies(s.launched(x), all_of(s.minted(reader(x)), in_lease(target_page(x), reader(x)), lent)),
        )

    return every(Read, is_in_order)


def carries_own(s: PullState) -> Formula:
    """What a flying read has read is its request's context, unless its decode life is over."""

    def is_own(x: Term, q: Term) -> Formula:
        right = any_of(q == wanted(reader(x)), s.decode_dead(life_of(reader(x))))
        return implies(s.carries(x, q), all_of(s.launched(x), ~s.reading(x), implies(s.flying(x), right)))

    return every(Read, Request, is_own)


def tag_is_own(s: PullState) -> Formula:
    """Beside a lease's tag lies its own context, unless its decode life is over."""

    def is_own(p: Term, t: Term, q: Term) -> Formula:
        return implies(s.page_holds(p, t, q), any_of(q == wanted(t), s.decode_dead(life_of(t))))

    return every(Page, Lease, Request, is_own)


def lent_is_kept(s: PullState) -> Formula:
    """Rule 13: until it is taken back, a lent page is of this life's memory and holds the request's context."""

    def is_kept(k: Term, i: Term, t: Term, a: Term) -> Formula:
        own = all_of(source_memory_of(a) == i, implies(~s.taken_back(k, i, t), s.source_holds(a, wanted(t))))
        return implies(all_of(s.offered(k, i, t), lends(k, i, t, a)), own)

    return every(Rank, Life, Lease, Source, is_kept)


def taken_back_is_proved(s: PullState) -> Formula:
    """Rule 13: what was taken back had a proof."""

    def is_proved(k: Term, i: Term, t: Term) -> Formula:
        told = any_of(s.said_ack(t), s.said_fenced(t), s.said_committed(t))
        return implies(s.taken_back(k, i, t), any_of(told, s.revoked(k, i, t), s.decode_dead(life_of(t))))

    return every(Rank, Life, Lease, is_proved)


def one_source_content(s: PullState) -> Formula:
    """A source page holds one content at a time."""
    return every(
        Source, Request, Request, lambda a, q, r: implies(all_of(s.source_holds(a, q), s.source_holds(a, r)), q == r)
    )


def one_life_of_a_rank(s: PullState) -> Formula:
    """A rank has one current life, a life belongs to one rank, and a life that is over is nobody's current one."""
    return all_of(
        every(Rank, Life, Life, lambda k, i, j: implies(all_of(s.current(k, i), s.current(k, j)), i == j)),
        every(Rank, Rank, Life, lambda k, h, i: implies(all_of(s.current(k, i), s.current(h, i)), k == h)),
        every(Rank, Rank, Life, lambda k, h, i: ~all_of(s.current(k, i), s.over(h, i))),
    )


def offered_by_a_life(s: PullState) -> Formula:
    """Whoever offered lives, or has lived."""
    return every(Rank, Life, Lease, lambda k, i, t: implies(s.offered(k, i, t), any_of(s.current(k, i), s.over(k, i))))


SAFETY = (no_wild_write, no_wild_read, read_own, no_alias, no_early_ack)

SUPPORTING = (
    *(only_minted, offered_is_minted, committed_is_live, end_stops, released_is_proved, closed_is_over),
    lease_is_own_memory,
    *(flying_is_counted, read_in_order, carries_own, tag_is_own, lent_is_kept, taken_back_is_proved),
    *(one_source_content, one_life_of_a_rank, offered_by_a_life),
)
