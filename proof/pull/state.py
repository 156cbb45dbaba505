"""Pull: decode's own launched reads fill its lease; what prefill lends must not be used again too early.

Not an exact mirror of push: the bytes still land at decode. A window that is revoked at the source protects the source
only; decode's pages need decode's own proof, every read terminal or its own endpoint closed and joined.
"""

from __future__ import annotations

from proof.logic import Declared, Formula, State, Term, all_of, every, function, implies, parameter, predicate, sort

Rank = sort("Rank")  # a prefill rank
Life = sort("Life")  # an incarnation of a prefill worker
DecodeLife = sort("DecodeLife")
Lease = sort("Lease")  # one attempt of one decode rank
Page = sort("Page")
Source = sort("Source")
Read = sort("Read")
Request = sort("Request")

# ---------------------------------------------------------------- what never changes

life_of = function("life_of", Lease, DecodeLife)
wanted = function("wanted", Lease, Request)
in_lease = predicate("in_lease", Page, Lease)
lends = predicate("lends", Rank, Life, Lease, Source)  # the source pages that an offer will name
memory_of = function("memory_of", Page, DecodeLife)
source_memory_of = function("source_memory_of", Source, Life)
lender = function("lender", Read, Rank)
lender_life = function("lender_life", Read, Life)
reader = function("reader", Read, Lease)
target_page = function("target_page", Read, Page)
source_page = function("source_page", Read, Source)

FUNCTIONS = (
    *(life_of, wanted, in_lease, lends, memory_of, source_memory_of),
    *(lender, lender_life, reader, target_page, source_page),
)


class PullState(State):
    """Everything that changes."""

    # decode
    minted = Declared(Lease)
    held = Declared(Lease)
    committed = Declared(Lease)  # and still in use
    released = Declared(Lease)
    decode_dead = Declared(DecodeLife)
    stopped = Declared(Lease)  # launches no more reads
    poisoned = Declared(Lease)
    # messages, each true once it is
    said_ack = Declared(Lease)  # decode: every read of this attempt is terminal
    said_fenced = Declared(Lease)  # decode: its own endpoint was closed and joined
    said_committed = Declared(Lease)
    said_closed = Declared(Lease)  # decode: every later message calls this attempt closed
    # prefill
    current = Declared(Rank, Life)
    over = Declared(Rank, Life)
    offered = Declared(Rank, Life, Lease)  # the window is open: decode was told where to read
    revoked = Declared(Rank, Life, Lease)  # a fact at the source: no read is served any more
    taken_back = Declared(Rank, Life, Lease)  # prefill has a proof, the source pages are its own again
    # reads
    launched = Declared(Read)
    outstanding = Declared(Read)
    reading = Declared(Read)  # the source was not read yet
    flying = Declared(Read)  # bytes may still land
    placed = Declared(Read)
    carries = Declared(Read, Request)
    # memory
    source_holds = Declared(Source, Request)
    page_holds = Declared(Page, Lease, Request)  # under which lease's tag, and whose context


rank = parameter("rank", Rank)
life = parameter("life", Life)
next_life = parameter("next_life", Life)
decode_life = parameter("decode_life", DecodeLife)
lease = parameter("lease", Lease)
read = parameter("read", Read)
source = parameter("source", Source)
request = parameter("request", Request)

PARAMETERS = (rank, life, next_life, decode_life, lease, read, source, request)

there = (rank, life, lease)


def window_of(x: Term) -> tuple[Term, Term, Term]:
    """Which rank, in which life, lent to which lease what this read reads."""
    return lender(x), lender_life(x), reader(x)


def is_live(s: PullState, t: Term) -> Formula:
    """Reserved and not given back."""
    return all_of(s.minted(t), ~s.released(t), ~s.decode_dead(life_of(t)))


def start() -> tuple[PullState, Formula]:
    """Nothing has happened; a rank has one life, a life belongs to one rank; source pages hold anything."""
    s = PullState.empty("current", "source_holds")
    one_life = every(Rank, Life, Life, lambda k, i, j: implies(all_of(s.current(k, i), s.current(k, j)), i == j))
    one_rank = every(Rank, Rank, Life, lambda k, h, i: implies(all_of(s.current(k, i), s.current(h, i)), k == h))
    one_content = every(
        Source, Request, Request, lambda a, q, r: implies(all_of(s.source_holds(a, q), s.source_holds(a, r)), q == r)
    )
    return s, all_of(one_life, one_rank, one_content)
