"""Continuous batching on a simulated decode worker: who runs, on which pages, and what those hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quiesce.ids import Attempt, RequestId
from quiesce.kv.allocator import PageState
from quiesce.kv.prefix_cache import Reader
from quiesce.kv.runs import Pages
from quiesce.lab.swarm.checkers import Cell
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.memory import reader_of
from quiesce.lab.swarm.submission import Submission
from quiesce.protocol.messages import Failure, Fault
from quiesce.worker.headroom import growth_pages
from quiesce.worker.priority_queue import Rank, rank_of

if TYPE_CHECKING:
    from quiesce.lab.swarm.decode import DecodeWorker

NO_PAGE_LEFT = Failure(
    "pool_quarantined", "Pages in quarantine leave no room for the rest of this answer.", Fault.DECODE, 503
)


class Sequence:
    """A running request. `pages[rank]` are in order of the context, `cells[rank]` what must lie in them.

    Of the first `borrowed` pages none is the batch's to free. `saved` counts its pages while it is retracted.
    """

    __slots__ = (
        *("attempt", "borrowed", "cells", "ended", "getters", "own", "pages", "position", "prefix", "rank"),
        *("said", "saved", "submission"),
    )

    def __init__(self, submission: Submission, ranks: int) -> None:
        self.submission = submission
        self.pages: list[list[int]] = [[] for _ in range(ranks)]
        self.cells: list[list[Cell]] = [[] for _ in range(ranks)]
        self.getters: list[tuple[Any, Any]] = []
        self.own: list[list[Pages]] = [[] for _ in range(ranks)]
        self.prefix: list[Reader] = []
        self.attempt: Attempt | None = None
        self.borrowed = 0
        self.position = submission.text.n_tokens
        self.said = 0
        self.saved = 0
        self.ended = False
        self.rank: Rank = rank_of(0, 0)

    @property
    def left_tokens(self) -> int:
        return self.submission.max_tokens - self.said

    def watch(self) -> None:
        """Make ready to read all pages at once."""
        self.getters = [
            (reader_of(pages), tuple(cells) if len(cells) > 1 else cells[0])
            for pages, cells in zip(self.pages, self.cells, strict=True)
        ]


class Batch:
    """At most `max_running` sequences decode together; when pages run out the last by rank is retracted."""

    def __init__(self, ground: Ground, worker: DecodeWorker) -> None:
        self._ground = ground
        self._worker = worker
        self._running: list[Sequence] = []
        self._joining: list[Sequence] = []
        self.retracted: list[Sequence] = []
        self.by_request: dict[RequestId, Sequence] = {}
        self._arrivals = 0
        self._stepping = False

    # ------------------------------------------------------------ what the worker sees

    @property
    def running(self) -> int:
        return len(self.by_request)

    def growth_pages(self, most_tokens: int) -> int:
        page_size = self._ground.p.page_size
        every = (*self._running, *self._joining)
        return sum(growth_pages(s.position, len(s.pages[0]), min(s.left_tokens, most_tokens), page_size) for s in every)

    def begin(self, sequence: Sequence) -> None:
        """Say the first token; unless that ends it, the sequence joins at the next step."""
        self.by_request[sequence.submission.request] = sequence
        sequence.rank = rank_of(sequence.submission.ask.priority, self._arrivals)
        self._arrivals += 1
        sequence.watch()
        self._read(sequence)
        self._say(sequence)
        if sequence.ended:
            self._leave(sequence)
        else:
            self._joining.append(sequence)
            self.wake()

    def end(self, request: RequestId) -> bool:
        """Stop a sequence; its pages come back when the step under way ends."""
        sequence = self.by_request.get(request)
        if sequence is None or sequence.ended:
            return False
        sequence.ended = True
        self.wake()
        return True

    def wake(self) -> None:
        if not self._stepping and self.by_request:
            self._stepping = True
            life = self._worker.life
            self._ground.loop.after(self._ground.p.step_s / life.pace, life, self._step)

    # ------------------------------------------------------------ a step

    def _step(self) -> None:
        self._stepping = False
        if self.retracted:
            self._restore()
        self._join()
        page_size = self._ground.p.page_size
        for sequence in list(self._running):
            if sequence.ended or sequence.saved:
                continue  # saved: it was retracted in this step
            if sequence.position >= len(sequence.pages[0]) * page_size and not self._has_page(sequence):
                continue
            self._read(sequence)
            sequence.position += 1
            self._say(sequence)
        for sequence in [s for s in self.by_request.values() if s.ended]:
            self._leave(sequence)
        checks = self._ground.checks.admission
        checks.within(len(self._running), self._ground.p.max_running, "running requests", self._worker.name)
        self._worker.stepped()
        self.wake()

    def _read(self, sequence: Sequence) -> None:
        """What a step's attention reads: every page, every slice of it."""
        checks = self._ground.checks
        for (getter, expected), memory in zip(sequence.getters, self._worker.memories, strict=True):
            for cells in memory.cells:
                if getter(cells) != expected:
                    where = f"{memory.where} for request {sequence.submission.ask.number}"
                    checks.read_own.read(getter(cells), expected, where, sequence.submission.ask.number)
        checks.read_own.looked += 1

    def _say(self, sequence: Sequence) -> None:
        sequence.said += 1
        submission = sequence.submission
        last = sequence.said >= min(submission.ask.answer, submission.max_tokens)
        sequence.ended = last
        self._worker.said(submission, last)

    # ------------------------------------------------------------ pages

    def _join(self) -> None:
        while self._joining and len(self._running) < self._ground.p.max_running:
            sequence = min(self._joining, key=_rank)
            self._joining.remove(sequence)
            if sequence.ended:
                self._leave(sequence)
            else:
                self._running.append(sequence)

    def _has_page(self, sequence: Sequence) -> bool:
        """Whether a page could be taken for its next token."""
        while not self._grow(sequence, 1):
            last = max((*self._running, *self._joining), key=_rank)
            if last is sequence:
                self._fail_if_stuck(sequence, len(sequence.pages[0]) + 1)
                return False
            self._retract(last)
        return True

    def _grow(self, sequence: Sequence, n_pages: int) -> bool:
        """Take pages of its own at every rank; False, and none taken, when there are too few."""
        worker = self._worker
        if any(memory.allocator.available_pages < n_pages for memory in worker.memories):
            return False
        for rank, memory in enumerate(worker.memories):
            taken = memory.allocator.allocate(n_pages, sequence.submission.request, PageState.USED)
            pages = taken.pages.tolist()
            self._ground.checks.no_alias.leased(0, pages, memory.writers, memory.readers, memory.where)
            cells: list[Cell] = [(taken.tag, -sequence.submission.ask.number)] * n_pages
            memory.put(pages, cells)
            memory.read_by(pages, 1)
            sequence.own[rank].append(taken.pages)
            sequence.pages[rank] += pages
            sequence.cells[rank] += cells
        sequence.watch()
        return True

    def _fail_if_stuck(self, sequence: Sequence, wanted: int) -> None:
        if any(memory.allocator.usable_pages < wanted for memory in self._worker.memories):
            sequence.ended = True
            self._worker.tell_failed(sequence.submission, NO_PAGE_LEFT)

    def _retract(self, sequence: Sequence) -> None:
        """Save its context, which is read once more, and free its pages."""
        self._ground.marks.hit("retracted")
        self._read(sequence)
        if sequence.ended:
            self._leave(sequence)
            return
        self._stop(sequence)
        sequence.saved = len(sequence.pages[0])
        self._give_back(sequence)
        self.retracted.append(sequence)

    def _restore(self) -> None:
        while self.retracted and len(self._running) < self._ground.p.max_running:
            sequence = min(self.retracted, key=_rank)
            self._fail_if_stuck(sequence, sequence.saved)
            others = len(self._running) + len(self._joining)
            room = min(memory.allocator.available_pages for memory in self._worker.memories)
            if sequence.ended or room < sequence.saved + others or not self._grow(sequence, sequence.saved):
                return
            self.retracted.remove(sequence)
            self._running.append(sequence)
            sequence.saved = 0
            self._ground.marks.hit("restored")

    # ------------------------------------------------------------ ends

    def _leave(self, sequence: Sequence) -> None:
        self._stop(sequence)
        self._give_back(sequence)
        self.by_request.pop(sequence.submission.request, None)

    def _stop(self, sequence: Sequence) -> None:
        for place in (self._running, self._joining, self.retracted):
            if sequence in place:
                place.remove(sequence)

    def _give_back(self, sequence: Sequence) -> None:
        for rank, memory in enumerate(self._worker.memories):
            memory.read_by(sequence.pages[rank], -1)
            for pages in sequence.own[rank]:
                memory.allocator.release(pages)
        for reader in sequence.prefix:
            reader.leave()
        attempt, ranks = sequence.attempt, len(self._worker.memories)
        sequence.pages, sequence.cells = [[] for _ in range(ranks)], [[] for _ in range(ranks)]
        sequence.own, sequence.prefix, sequence.attempt = [[] for _ in range(ranks)], [], None
        if attempt is not None:
            self._worker.lease_unused(attempt)


def _rank(sequence: Sequence) -> Rank:
    return sequence.rank
