"""Staged landing: what decode keeps intact although nothing is known about writers.

The network is as bad as can be: at any time any value lands in any word of the staging buffers, whoever wrote it, torn,
late, repeated, from an attempt that is over or a source that is used again. There is no hold, no ack, no tombstone and
no proof here: none of rules 1 to 9. Leases are given back at any time, buffers are used again at once.
"""

from __future__ import annotations

from proof.logic import TRUE, Declared, Formula, State, Term, all_of, function, parameter, predicate, sort

Lease = sort("Lease")
Word = sort("Word")  # a word of a lease's context: which page, layer, rank's slice and offset
Cell = sort("Cell")  # a word of decode's memory
Value = sort("Value")
Rank = sort("Rank")
Request = sort("Request")
Digest = sort("Digest")

staged_at = function("staged_at", Lease, Word, Cell)  # where writers are told to put a word
private_at = function("private_at", Lease, Word, Cell)  # the word's place in the pool
truth = function("truth", Request, Word, Value)  # what prefill computes for it
slice_of = function("slice_of", Word, Rank)  # which rank computes this word
wanted = function("wanted", Lease, Request)
digest = function("digest", Request, Digest)  # the request digest
is_staging = predicate("is_staging", Cell)  # registered with a transport: remote writes reach it
has_word = predicate("has_word", Lease, Word)  # the lease's context has this word
is_tag = predicate("is_tag", Word)  # the words that a tag check looks at

FUNCTIONS = (staged_at, private_at, truth, slice_of, wanted, digest, is_staging, has_word, is_tag)


class StagedState(State):
    """Everything that changes."""

    minted = Declared(Lease)
    released = Declared(Lease)
    verified = Declared(Lease)
    committed = Declared(Lease)  # and still in use
    attends = Declared(Lease, Word, Cell)  # a committed request reads this word here
    told = Declared(Rank, Lease, Request)  # DONE of this rank: the payload digest of its slice of that request
    holds = Declared(Cell, Value)


lease = parameter("lease", Lease)
word = parameter("word", Word)
cell = parameter("cell", Cell)
value = parameter("value", Value)
rank = parameter("rank", Rank)
request = parameter("request", Request)

PARAMETERS = (lease, word, cell, value, rank, request)


def is_live(s: StagedState, t: Term) -> Formula:
    return all_of(s.minted(t), ~s.released(t))


def has_own_digest(q: Term, t: Term) -> Formula:
    return digest(q) == digest(wanted(t))


def start() -> tuple[StagedState, Formula]:
    """Nothing has happened. Memory is empty; every cell gets its first value by somebody's write."""
    s = StagedState.empty()
    return s, TRUE
