"""Continuous batching on decode: who runs in the next step, on which pages, and what came of it.

Everything here lives on the event loop's thread; the engine thread gets finished arrays and gives tokens back. While
a step is in flight its sequences keep their pages, whatever happened to their requests meanwhile (rule 16).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quiesce.engine.engine import Engine
from quiesce.errors import InvariantBroken, OutOfPages
from quiesce.ids import RequestId
from quiesce.integrity.watch import TagWatch
from quiesce.kv.allocator import PageAllocator, PageState
from quiesce.kv.runs import Pages
from quiesce.kv.storage import Pool
from quiesce.protocol.dispatch import Tokens
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Failure, Fault
from quiesce.worker.compute import Compute
from quiesce.worker.headroom import growth_pages
from quiesce.worker.priority_queue import Rank, rank_of
from quiesce.worker.request import grammar_failed, rejection
from quiesce.worker.sequence import Sequence
from quiesce.worker.step import Drawn, Plan, decode

MOST_LOST_STEPS = 3
"""Steps in a row in which no sequence got its token: after them it is not the requests' fault."""

FOREIGN_CONTEXT = Failure(
    "context_changed",
    "The context of this request changed while it was being answered, so the answer was ended.",
    Fault.TRANSPORT,
)
NO_PAGE_LEFT = Failure(
    "pool_quarantined", "Pages in quarantine leave no room for the rest of this answer.", Fault.DECODE, 503
)

COMPUTE_FAILED = Failure("compute_failed", "Computing the next token failed on this worker.", Fault.QUIESCE)


class BatchOwner(Protocol):
    """Who is told what becomes of the sequences."""

    def emit(self, sequence: Sequence, tokens: Tokens) -> None: ...
    def fail(self, sequence: Sequence, failure: Failure, error: Exception | None = None) -> None:
        """The sequence ends without an answer, because of `error` if there was one."""

    def keep(self, sequence: Sequence) -> Pages:
        """The sequence ended well: the prefix cache may take pages of it. Those of the batch's that are to be freed."""

    def lease_unused(self, sequence: Sequence) -> None:
        """The sequence no longer uses the pages of its hand-off."""

    def stepped(self) -> None:
        """A step ended; pages may have come back."""


class Batch:
    """At most `max_running` sequences decode together; when pages run out the last by rank goes to host memory."""

    def __init__(
        self,
        engine: Engine,
        pool: Pool,
        allocator: PageAllocator,
        compute: Compute,
        max_running: int,
        owner: BatchOwner,
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._allocator = allocator
        self._compute = compute
        self._max_running = max_running
        self._owner = owner
        self._watch: TagWatch[RequestId] = TagWatch()
        self._running: list[Sequence] = []
        self._joining: list[Sequence] = []
        self._retracted: list[Sequence] = []
        self._by_request: dict[RequestId, Sequence] = {}
        self._table: NDArray[np.int32] = np.empty((0, 0), np.int32)
        self._table_rows: list[Sequence] = []
        self._in_step = False
        self._lost_steps = 0
        self._next_serial = 0
        self._wake = asyncio.Event()

    # ------------------------------------------------------------ what the worker sees

    @property
    def running(self) -> int:
        return len(self._by_request)

    def __contains__(self, request: RequestId) -> bool:
        return request in self._by_request

    @property
    def retracted(self) -> int:
        return len(self._retracted)

    def growth_pages(self, most_tokens: int) -> int:
        """Pages that the sequences that have some may ask for within their next `most_tokens` tokens."""
        page_size = self._pool.layout.page_size
        every = (*self._running, *self._joining)
        return sum(growth_pages(s.position, len(s.pages), min(s.left_tokens, most_tokens), page_size) for s in every)

    def begin(self, sequence: Sequence, first_token: int, told: TokenLogprobs | None = None) -> None:
        """Say the first token; unless that ends it, the sequence joins the batch at the next step."""
        self._by_request[sequence.request] = sequence
        sequence.rank = rank_of(sequence.generation.priority, self._next_serial)
        self._next_serial += 1
        self._accept(sequence, first_token, told)
        if sequence.ended:
            self._leave(sequence)
        else:
            self._joining.append(sequence)
            sequence.await_mask(self.wake)
            self._wake.set()

    def refuse(self, sequence: Sequence, error: Exception) -> None:
        """A sequence that cannot begin, because of `error`: it fails, and its pages come back."""
        self._by_request[sequence.request] = sequence
        self._break(sequence, error)
        self._leave(sequence)

    def end(self, request: RequestId) -> bool:
        """Stop a sequence (its client left). Its pages come back now, or when the step in flight ends."""
        sequence = self._by_request.get(request)
        if sequence is None or sequence.ended:
            return False
        sequence.ended = True
        if not self._in_step:
            self._sweep()
        self._wake.set()
        return True

    def wake(self) -> None:
        """Pages came back or a sequence may join: look again."""
        self._wake.set()

    async def idle(self) -> None:
        """Wait until something may be done."""
        await self._wake.wait()
        self._wake.clear()

    # ------------------------------------------------------------ a step

    async def step(self) -> bool:
        """Decode one token for every sequence that can go on. False when there was nothing to do."""
        self._in_step = True
        try:
            rows = await self._prepare()
            if rows:
                drawn = await self._compute.run(decode, self._engine, rows, self._plan(rows))
                self._check_tags()
                self._apply(rows, drawn)
                self._count_lost(rows, drawn)
        finally:
            self._in_step = False
            self._sweep()
        self._owner.stepped()
        return bool(rows)

    async def _prepare(self) -> list[Sequence]:
        await self._restore()
        self._join()
        stalled = await self._grow()
        return [s for s in self._running if not s.ended and s not in stalled and s.may_step(self.wake)]

    def _plan(self, rows: list[Sequence]) -> Plan:
        tokens = np.fromiter((s.last_token for s in rows), np.int32, len(rows))
        positions = np.fromiter((s.position for s in rows), np.int32, len(rows))
        if rows != self._table_rows:
            self._table = _page_table(rows)
            self._table_rows = list(rows)
        return Plan(tokens, positions, self._table)

    def _apply(self, rows: list[Sequence], drawn: Drawn) -> None:
        for row, (sequence, token) in enumerate(zip(rows, drawn.tokens.tolist(), strict=True)):
            if sequence.ended:
                continue
            if row in drawn.errors:
                self._break(sequence, drawn.errors[row])
            elif row in drawn.late:
                sequence.misses += 1
                sequence.await_mask(self.wake)
            elif sequence.problem:
                self._cannot_go_on(sequence)
            else:
                sequence.position += 1
                self._accept(sequence, token, drawn.told[row] if drawn.told else None)

    def _accept(self, sequence: Sequence, token: int, told: TokenLogprobs | None) -> None:
        try:
            tokens = sequence.accept(token, told)
        except InvariantBroken:
            raise
        except Exception as error:
            self._break(sequence, error)
            return
        sequence.ended = bool(tokens.finish)
        self._owner.emit(sequence, tokens)

    def _break(self, sequence: Sequence, error: Exception) -> None:
        """An error that is this sequence's own ends it; the others do not notice."""
        self._fail(sequence, COMPUTE_FAILED, error)

    def _cannot_go_on(self, sequence: Sequence) -> None:
        """Nothing can be drawn under its grammar: that is its own fault, and no lost step."""
        self._fail(sequence, rejection(grammar_failed(sequence.problem), Fault.CLIENT))

    def _count_lost(self, rows: list[Sequence], drawn: Drawn) -> None:
        """Raise the error of a step in which nobody got a token, if it was not the first such step."""
        if len(drawn.errors) < len(rows):
            self._lost_steps = 0
            return
        self._lost_steps += 1
        if self._lost_steps >= MOST_LOST_STEPS:
            raise next(iter(drawn.errors.values()))

    # ------------------------------------------------------------ pages

    def _join(self) -> None:
        while len(self._running) < self._max_running:
            able = [s for s in self._joining if s.ended or s.can_draw]
            if not able:
                return
            sequence = min(able, key=_rank)
            self._joining.remove(sequence)
            if sequence.ended:
                self._leave(sequence)
            else:
                self._enter(sequence)

    def _enter(self, sequence: Sequence) -> None:
        self._running.append(sequence)
        self._watch.add(sequence.request, sequence.pages, sequence.tags)
        self._table_rows = []

    async def _grow(self) -> set[Sequence]:
        """Give each running sequence the page its next token needs; the sequences that must wait for one."""
        stalled: set[Sequence] = set()
        for sequence in list(self._running):
            if sequence in self._running and self._is_full(sequence) and not await self._add_page(sequence):
                stalled.add(sequence)
        return stalled

    def _is_full(self, sequence: Sequence) -> bool:
        return not sequence.ended and sequence.position >= len(sequence.pages) * self._pool.layout.page_size

    async def _add_page(self, sequence: Sequence) -> bool:
        while True:
            try:
                pages, tag = self.allocate(1, sequence.request)
            except OutOfPages:
                if not await self._retract_after(sequence):
                    self._fail_if_stuck(sequence)
                    return False
                continue
            sequence.own(pages, tag)
            self._watch.extend(sequence.request, int(pages[0]), tag)
            self._table_rows = []
            return True

    def _fail_if_stuck(self, sequence: Sequence) -> None:
        """All that can be retracted is, and what is left cannot hold one page more: waiting would last for ever."""
        if len(sequence.pages) >= self._allocator.usable_pages:
            self._fail_for_room(sequence)

    def _fail_for_room(self, sequence: Sequence) -> None:
        self._fail(sequence, NO_PAGE_LEFT)

    def allocate(self, n_pages: int, owner: str) -> tuple[NDArray[np.int32], int]:
        """Pages that only this worker ever writes, stamped at once. Raises OutOfPages."""
        allocation = self._allocator.allocate(n_pages, owner, PageState.USED)
        self._pool.tags[allocation.pages] = allocation.tag
        return allocation.pages, allocation.tag

    async def _retract_after(self, needy: Sequence) -> bool:
        """Retract the last sequence by rank that has pages. False when that is `needy`: the first always goes on."""
        last = max((*self._running, *self._joining), key=_rank)
        if last is needy:
            return False
        await self._retract(last)
        return True

    async def _retract(self, sequence: Sequence) -> None:
        """Save a sequence's context to host memory and free its pages. What was copied is checked, like a step's."""
        saved = await self._compute.run(_copy_out, self._pool, sequence.pages)
        if not self._bears_its_tags(sequence):
            self._taint(sequence)
        if sequence.ended:
            self._leave(sequence)
            return
        self._stop_running(sequence)
        self._give_back(sequence)
        sequence.saved = saved
        self._retracted.append(sequence)

    async def _restore(self) -> None:
        """Bring retracted sequences back, first by rank, while there is room for them and one page more each."""
        while self._retracted and len(self._running) < self._max_running:
            sequence = min(self._retracted, key=_rank)
            if sequence.saved is not None and len(sequence.saved) > self._allocator.usable_pages:
                self._fail_for_room(sequence)
                return
            next_pages = len(self._running) + len(self._joining)
            if sequence.saved is None or self._allocator.available_pages < len(sequence.saved) + next_pages:
                return
            self._retracted.remove(sequence)
            pages, tag = self.allocate(len(sequence.saved), sequence.request)
            sequence.own(pages, tag)
            self._enter(sequence)
            await self._compute.run(_copy_in, self._pool, pages, sequence.saved)
            sequence.saved = None

    # ------------------------------------------------------------ ends

    def _check_tags(self) -> None:
        """After the arithmetic and before its tokens are said: was every page that it read still its own?"""
        for request in self._watch.check(self._pool):
            self._taint(self._by_request[request])

    def _bears_its_tags(self, sequence: Sequence) -> bool:
        return bool((self._pool.tags[sequence.pages] == sequence.tags[:, None]).all())

    def _taint(self, sequence: Sequence) -> None:
        """A page lost its tag: somebody else wrote it. The answer ends and the pages stay out of circulation."""
        sequence.tainted = True
        self._fail(sequence, FOREIGN_CONTEXT)

    def _fail(self, sequence: Sequence, failure: Failure, error: Exception | None = None) -> None:
        sequence.ended = sequence.failed = True
        self._owner.fail(sequence, failure, error)

    def _sweep(self) -> None:
        """Take ended sequences out, now that no step reads or writes their pages."""
        for sequence in [s for s in self._by_request.values() if s.ended]:
            self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self._stop_running(sequence)
        self._give_back(sequence)
        self._by_request.pop(sequence.request, None)

    def _stop_running(self, sequence: Sequence) -> None:
        for place in (self._running, self._joining, self._retracted):
            if sequence in place:
                place.remove(sequence)
        self._watch.remove(sequence.request)
        self._table_rows = []

    def _give_back(self, sequence: Sequence) -> None:
        if sequence.tainted:
            self._allocator.mark(sequence.own_pages, PageState.QUARANTINED)
        else:
            ended_well = sequence.ended and not sequence.failed  # else it is retracted, or not to be trusted
            self._allocator.release(self._owner.keep(sequence) if ended_well else sequence.own_pages)
        _leave_prefix(sequence)
        self._owner.lease_unused(sequence)
        sequence.pages, sequence.tags = np.empty(0, np.int32), np.empty(0, np.uint64)
        sequence.borrowed_pages, sequence.attempt = 0, None


def _leave_prefix(sequence: Sequence) -> None:
    """What a foreign write has been near is shared no more."""
    if sequence.reader is not None:
        if sequence.tainted:
            sequence.reader.condemn_for_ever()
        sequence.reader.leave()


def _page_table(rows: list[Sequence]) -> NDArray[np.int32]:
    table = np.zeros((len(rows), max(len(s.pages) for s in rows)), np.int32)
    for row, sequence in enumerate(rows):
        table[row, : len(sequence.pages)] = sequence.pages
    return table


def _rank(sequence: Sequence) -> Rank:
    return sequence.rank


def _copy_out(pool: Pool, pages: NDArray[np.int32]) -> NDArray[np.float32]:
    saved: NDArray[np.float32] = pool.kv[pages].copy()
    return saved


def _copy_in(pool: Pool, pages: NDArray[np.int32], saved: NDArray[np.float32]) -> None:
    pool.kv[pages] = saved
