"""Pull: what decode, prefill and the transport do. One function, one action."""

from __future__ import annotations

from dataclasses import dataclass

from proof.logic import Formula, Step, Term, all_of, any_of, either, every, implies, some, step, when
from proof.pull.state import (
    Lease,
    Life,
    Page,
    PullState,
    Rank,
    Read,
    Request,
    Source,
    decode_life,
    in_lease,
    is_live,
    lease,
    lends,
    life,
    life_of,
    memory_of,
    next_life,
    rank,
    read,
    reader,
    request,
    source,
    source_memory_of,
    source_page,
    target_page,
    there,
    wanted,
    window_of,
)


@dataclass(frozen=True)
class PullRules:
    """True is the protocol; the number is that of the rule in PROTOCOL section 4 that it mirrors, or a section."""

    every_failure_holds: bool = True  # 2
    ack_awaits_outstanding: bool = True  # 4
    unknown_fate_poisons: bool = True  # 5
    stopped_launches_nothing: bool = True  # 4
    commit_awaits_reads: bool = True  # 8
    closed_is_over: bool = True  # 9
    coverage: bool = True  # 11
    source_awaits_proof: bool = True  # 13
    revoking_frees_source_only: bool = True  # section 6
    revoked_is_not_served: bool = True  # section 6
    fresh_memory: bool = True  # section 2
    fresh_source_memory: bool = True  # section 2
    death_frees_source: bool = True  # section 6; may be left out, see variants


# ---------------------------------------------------------------- decode


def reserve(s: PullState, rules: PullRules) -> Step:
    """Pages of this decode life that no live lease has."""

    def is_free(p: Term) -> Formula:
        owned = some(Lease, lambda u: all_of(is_live(s, u), in_lease(p, u)))
        return all_of(when(rules.fresh_memory, memory_of(p) == life_of(lease)), ~owned)

    return step(
        ~s.minted(lease),
        ~s.decode_dead(life_of(lease)),
        every(Page, lambda p: implies(in_lease(p, lease), is_free(p))),
        then=[s.minted.plus(lease)],
    )


def is_idle(s: PullState) -> Formula:
    """No read of this lease is counted as outstanding."""
    return every(Read, lambda x: ~all_of(s.outstanding(x), reader(x) == lease))


def commit(s: PullState, rules: PullRules) -> Step:
    """Every read is terminal and every page bears the lease's tag. COMMITTED tells prefill that its pages are free."""
    covered = every(Page, lambda p: implies(in_lease(p, lease), some(Request, lambda q: s.page_holds(p, lease, q))))
    return step(
        is_live(s, lease),
        ~s.held(lease),
        ~s.committed(lease),
        ~s.poisoned(lease),
        when(rules.commit_awaits_reads, is_idle(s)),
        when(rules.coverage, covered),
        then=[s.committed.plus(lease), s.said_committed.plus(lease), s.stopped.plus(lease)],
    )


def finish(s: PullState, rules: PullRules) -> Step:
    """The request ends, its pages are free."""
    return step(s.committed(lease), then=[s.committed.minus(lease), s.released.plus(lease)])


def abort(s: PullState, rules: PullRules) -> Step:
    """Whatever ends the attempt, prefill's ABORT included: hold, and launch no more."""
    return step(is_live(s, lease), ~s.committed(lease), then=[s.held.plus(lease), s.stopped.plus(lease)])


def send_ack(s: PullState, rules: PullRules) -> Step:
    """ABORT_ACK, from decode here: held, nothing outstanding, nothing of unknown fate."""
    return step(
        is_live(s, lease),
        s.held(lease),
        when(rules.unknown_fate_poisons, ~s.poisoned(lease)),
        when(rules.ack_awaits_outstanding, is_idle(s)),
        then=[s.said_ack.plus(lease)],
    )


def close_endpoint(s: PullState, rules: PullRules) -> Step:
    """Decode's own endpoint is closed and joined: no read of it lands or reads any more."""
    return step(
        is_live(s, lease),
        s.held(lease),
        then=[s.said_fenced.plus(lease), s.flying.minus_where(lambda x: reader(x) == lease)],
    )


def release(s: PullState, rules: PullRules) -> Step:
    """Decode's pages are free by decode's own proof. What prefill revoked is none."""
    revoked = some(Rank, Life, lambda k, i: s.revoked(k, i, lease))
    proofs = [s.said_ack(lease), s.said_fenced(lease), *([] if rules.revoking_frees_source_only else [revoked])]
    return step(is_live(s, lease), s.held(lease), any_of(*proofs), then=[s.released.plus(lease)])


def say_closed(s: PullState, rules: PullRules) -> Step:
    """Rule 9: decode's messages list what is open; what is not in there any more was given back."""
    return step(
        s.minted(lease),
        ~s.decode_dead(life_of(lease)),
        when(rules.closed_is_over, s.released(lease)),
        then=[s.said_closed.plus(lease)],
    )


def crash_decode(s: PullState, rules: PullRules) -> Step:
    """A decode life ends; its memory is nobody else's, ever."""
    return step(
        ~s.decode_dead(decode_life),
        then=[s.decode_dead.plus(decode_life), s.committed.minus_where(lambda t: life_of(t) == decode_life)],
    )


# ---------------------------------------------------------------- reads


def launch(s: PullState, rules: PullRules) -> Step:
    """Decode launches a read of a lent page into its lease, and counts it."""
    return step(
        is_live(s, reader(read)),
        when(rules.stopped_launches_nothing, ~s.stopped(reader(read))),
        ~s.launched(read),
        s.offered(*window_of(read)),
        lends(*window_of(read), source_page(read)),
        in_lease(target_page(read), reader(read)),
        then=[s.launched.plus(read), s.outstanding.plus(read), s.reading.plus(read), s.flying.plus(read)],
    )


def serve(s: PullState, rules: PullRules) -> Step:
    """The source is read, whatever it holds by now; a revoked window serves nobody."""
    return step(
        s.reading(read),
        s.source_holds(source_page(read), request),
        when(rules.revoked_is_not_served, ~s.revoked(*window_of(read))),
        then=[s.reading.minus(read), s.carries.plus(read, request)],
    )


def land(s: PullState, rules: PullRules) -> Step:
    """The bytes land, and decode stamps the tag."""

    def now(p: Term, t: Term, q: Term) -> Formula:
        mine = all_of(t == reader(read), s.carries(read, q))
        return either(p == target_page(read), mine, s.page_holds(p, t, q))

    return step(
        s.flying(read),
        ~s.reading(read),
        then=[s.flying.minus(read), s.placed.plus(read), s.page_holds.becomes(now)],
    )


def vanish(s: PullState, rules: PullRules) -> Step:
    """A read fails for good: nothing of it will land."""
    return step(s.flying(read), then=[s.flying.minus(read), s.reading.minus(read)])


def is_reported(s: PullState) -> Formula:
    """Reports reach only the life that launched the read."""
    return all_of(~s.decode_dead(life_of(reader(read))), s.outstanding(read))


def landed(s: PullState, rules: PullRules) -> Step:
    """`landed`: the count falls."""
    return step(is_reported(s), s.placed(read), then=[s.outstanding.minus(read)])


def failed_quiesced(s: PullState, rules: PullRules) -> Step:
    """`failed_quiesced`: the count falls, the attempt stops."""
    over = all_of(~s.flying(read), ~s.reading(read))
    return step(is_reported(s), over, then=[s.outstanding.minus(read), s.stopped.plus(reader(read))])


def failed_in_flight(s: PullState, rules: PullRules) -> Step:
    """`failed_in_flight`: nobody knows; the attempt is poisoned."""
    stops = [s.stopped.plus(reader(read)), s.poisoned.plus(reader(read))]
    return step(is_reported(s), then=[s.outstanding.minus(read), *stops])


# ---------------------------------------------------------------- prefill


def offer(s: PullState, rules: PullRules) -> Step:
    """Prefill lends source pages that hold the request's context."""

    def is_own(a: Term) -> Formula:
        return implies(lends(*there, a), all_of(source_memory_of(a) == life, s.source_holds(a, wanted(lease))))

    return step(
        s.current(rank, life),
        s.minted(lease),
        ~s.offered(*there),
        every(Source, is_own),
        then=[s.offered.plus(*there)],
    )


def revoke(s: PullState, rules: PullRules) -> Step:
    """Prefill closes the window: a fact at the source, for the source."""
    return step(s.current(rank, life), s.offered(*there), then=[s.revoked.plus(*there)])


def take_back(s: PullState, rules: PullRules) -> Step:
    """Rule 13, mirrored: decode acked, fenced, committed or closed, or the window is revoked, or the reader is dead.

    That another life took decode's place is in none of them: what was replaced may read on, and attend what it read.
    """
    told = [s.said_ack(lease), s.said_fenced(lease), s.said_committed(lease), s.said_closed(lease)]
    proofs = [*told, s.revoked(*there)]
    dead = [s.decode_dead(life_of(lease))] if rules.death_frees_source else []
    proved = when(rules.source_awaits_proof, any_of(*proofs, *dead))
    return step(s.current(rank, life), s.offered(*there), proved, then=[s.taken_back.plus(*there)])


def reuse_source(s: PullState, rules: PullRules) -> Step:
    """A source page gets other content when every window that lends it was taken back."""

    def is_free(k: Term, t: Term) -> Formula:
        lent = all_of(s.offered(k, life, t), lends(k, life, t, source))
        return implies(lent, s.taken_back(k, life, t))

    return step(
        s.current(rank, life),
        when(rules.fresh_source_memory, source_memory_of(source) == life),
        every(Rank, Lease, is_free),
        then=[s.source_holds.becomes(lambda a, q: either(a == source, q == request, s.source_holds(a, q)))],
    )


def crash_prefill(s: PullState, rules: PullRules) -> Step:
    """A life of a rank ends and a fresh one takes over. Reads of the old one's memory go on."""
    unused = every(Rank, lambda k: all_of(~s.current(k, next_life), ~s.over(k, next_life)))
    unoffered = every(Rank, Lease, lambda k, t: ~s.offered(k, next_life, t))

    def is_current(k: Term, i: Term) -> Formula:
        return either(k == rank, i == next_life, s.current(k, i))

    return step(s.current(rank, life), unused, unoffered, then=[s.over.plus(rank, life), s.current.becomes(is_current)])


# ---------------------------------------------------------------- only in mutants


def release_without_hold(s: PullState, rules: PullRules) -> Step:
    """One way to fail that gives the pages back at once."""
    return step(is_live(s, lease), ~s.committed(lease), then=[s.released.plus(lease)])


ACTIONS = (
    *(reserve, commit, finish, abort, send_ack, close_endpoint, release, say_closed, crash_decode),
    *(launch, serve, land, vanish, landed, failed_quiesced, failed_in_flight),
    *(offer, revoke, take_back, reuse_source, crash_prefill),
)

EXTRA = {"every_failure_holds": release_without_hold}
