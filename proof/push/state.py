"""Push: who and what there is, what never changes about it, and the relations that do change.

A *lease* is what one decode rank reserved for one attempt; `(rank, life, lease)` says "this lease, as told to this
prefill rank in this life" and is what records, messages and proofs are about. Messages are relations that only grow:
whatever was once said may be heard late, twice, or never, in any order, over any number of streams.
"""

from __future__ import annotations

from proof.logic import (
    Declared,
    Formula,
    State,
    Term,
    all_of,
    every,
    function,
    implies,
    parameter,
    predicate,
    some,
    sort,
)

Rank = sort("Rank")  # a prefill rank
Life = sort("Life")  # an incarnation of a prefill worker
DecodeLife = sort("DecodeLife")  # an incarnation of a decode worker
Attempt = sort("Attempt")
Lease = sort("Lease")
Page = sort("Page")  # destination, at decode
Source = sort("Source")  # source page, at prefill
Write = sort("Write")
Room = sort("Room")
Request = sort("Request")
Digest = sort("Digest")

# ---------------------------------------------------------------- what never changes

attempt_of = function("attempt_of", Lease, Attempt)
life_of = function("life_of", Attempt, DecodeLife)
room_of = function("room_of", Attempt, Room)
wanted = function("wanted", Attempt, Request)  # the request that decode made it for
in_lease = predicate("in_lease", Page, Lease)
fills = predicate("fills", Rank, Lease)  # has a slice to write; the others are dummy ranks
before = predicate("before", Attempt, Attempt)  # the order of numbers within a decode life

prefill_room = function("prefill_room", Request, Room)  # under which the router sent it to prefill
digest = function("digest", Request, Digest)  # of model, adapter, tenant salt and token ids

memory_of = function("memory_of", Page, DecodeLife)  # whose memory this page is: addresses are never used again
source_memory_of = function("source_memory_of", Source, Life)
plain_stores = predicate("plain_stores", Life)  # writes by CPU stores into shared memory: they end with the process

writer = function("writer", Write, Rank)
writer_life = function("writer_life", Write, Life)
target = function("target", Write, Lease)
target_page = function("target_page", Write, Page)
source_page = function("source_page", Write, Source)
payload = function("payload", Write, Request)  # the request whose context it is meant to carry

FUNCTIONS = (
    *(attempt_of, life_of, room_of, wanted, in_lease, fills, before),
    *(prefill_room, digest, memory_of, source_memory_of, plain_stores),
    *(writer, writer_life, target, target_page, source_page, payload),
)


class PushState(State):
    """Everything that changes."""

    # decode
    minted = Declared(Attempt)
    held = Declared(Lease)
    quarantined = Declared(Lease)
    committed = Declared(Lease)  # and still in use
    released = Declared(Lease)
    released_twice = Declared(Lease)  # nobody's state: only there to say `once`
    prefix_tree = Declared(Page, Lease)  # shared pages, and the lease they were filled for
    shares = Declared(Lease, Page)  # this lease's request attends a page of the prefix tree
    decode_dead = Declared(DecodeLife)
    granted = Declared(Rank, Life, Lease)  # was or may have been told the destination: PUBLISH left
    heard_bound = Declared(Rank, Life, Lease)
    done = Declared(Rank, Life, Lease)  # decode counted this DONE
    acked = Declared(Rank, Life, Lease)  # decode counted this ABORT_ACK
    fenced = Declared(Rank, Life, Lease)
    # messages
    said_bound = Declared(Rank, Life, Lease)
    said_done = Declared(Rank, Life, Lease)
    said_committed = Declared(Rank, Life, Lease)
    said_abort = Declared(Rank, Life, Lease)
    said_ack = Declared(Rank, Life, Lease)
    said_fenced = Declared(Rank, Life, Lease)
    said_closed = Declared(Attempt)  # below a watermark that decode told, and not in its list of open attempts
    # prefill
    current = Declared(Rank, Life)
    over = Declared(Rank, Life)  # this life of the rank has ended
    bound = Declared(Rank, Life, Lease)  # PUBLISH met its request: there is a record
    bound_to = Declared(Rank, Life, Lease, Request)
    stopped = Declared(Rank, Life, Lease)  # launches nothing more: what is queued is dropped at dequeue
    poisoned = Declared(Rank, Life, Lease)
    tombstone = Declared(Rank, Life, Lease)  # ABORT was heard
    closed = Declared(Rank, Life, Lease)  # heard that the attempt is not open any more; its record is gone
    heard_fenced = Declared(Rank, Life, Lease)
    buried = Declared(Rank, Life, DecodeLife)  # this decode life is refused, what there was of it is stopped
    # writes
    dequeued = Declared(Write)
    outstanding = Declared(Write)  # counted: this is the rank's count of an attempt
    launched = Declared(Write)
    reading = Declared(Write)  # the library, kernel or NIC has not read the source yet
    flying = Declared(Write)  # bytes may still land
    torn = Declared(Write)  # some of it landed, not all
    placed = Declared(Write)
    settled = Declared(Write)  # reported as `landed` or `failed_quiesced`
    source_fenced = Declared(Write)  # the sender's own endpoint was destroyed and joined under it
    carries = Declared(Write, Request)  # whose context was in the source page when it was read
    # memory
    source_holds = Declared(Source, Request)
    slice_holds = Declared(Rank, Page, Request)  # whose context lies in this rank's slice of a page, if it is whole
    tag = Declared(Rank, Page, Lease)  # which lease's tag is stamped beside it


# ---------------------------------------------------------------- what actions are about

rank = parameter("rank", Rank)
life = parameter("life", Life)
next_life = parameter("next_life", Life)
decode_life = parameter("decode_life", DecodeLife)
attempt = parameter("attempt", Attempt)
lease = parameter("lease", Lease)
other = parameter("other", Lease)
page = parameter("page", Page)
source = parameter("source", Source)
write = parameter("write", Write)
request = parameter("request", Request)

PARAMETERS = (rank, life, next_life, decode_life, attempt, lease, other, page, source, write, request)

there = (rank, life, lease)


def place_of(w: Term) -> tuple[Term, Term, Term]:
    """Which rank, in which life, writes into which lease."""
    return writer(w), writer_life(w), target(w)


def is_of(w: Term, k: Term, i: Term, t: Term) -> Formula:
    return all_of(writer(w) == k, writer_life(w) == i, target(w) == t)


def decode_life_of(t: Term) -> Term:
    return life_of(attempt_of(t))


def is_live(s: PushState, t: Term) -> Formula:
    """Reserved and not given back: decode still owns its pages for this attempt."""
    return all_of(s.minted(attempt_of(t)), ~s.released(t), ~s.decode_dead(decode_life_of(t)))


def has_own_digest(q: Term, t: Term) -> Formula:
    """The request's context is the one that the lease was made for."""
    return digest(q) == digest(wanted(attempt_of(t)))


def holds_own(s: PushState, k: Term, p: Term, t: Term) -> Formula:
    """The slice is whole, and holds the context of the lease's own request and nothing else."""
    whole = some(Request, lambda q: s.slice_holds(k, p, q))
    return all_of(whole, every(Request, lambda q: implies(s.slice_holds(k, p, q), has_own_digest(q, t))))


def passed_over(s: PushState, a: Term) -> Formula:
    """A later attempt of the same decode life exists already."""
    return some(Attempt, lambda b: all_of(s.minted(b), life_of(b) == life_of(a), before(a, b)))


def start() -> tuple[PushState, Formula]:
    """Nothing has happened; a rank has one life, a life belongs to one rank; source pages hold anything."""
    s = PushState.empty("current", "source_holds")
    one_life = every(Rank, Life, Life, lambda k, i, j: implies(all_of(s.current(k, i), s.current(k, j)), i == j))
    one_rank = every(Rank, Rank, Life, lambda k, h, i: implies(all_of(s.current(k, i), s.current(h, i)), k == h))
    one_content = every(
        Source, Request, Request, lambda a, q, r: implies(all_of(s.source_holds(a, q), s.source_holds(a, r)), q == r)
    )
    return s, all_of(one_life, one_rank, one_content)
