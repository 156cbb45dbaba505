"""Where writes land at a simulated decode rank, and what of it comes back when.

Directly: in the pool. Staged: in memory beside it, by production's own `StagedPages`; over plain stores each hand-off
has a segment that nobody else ever gets, else all share a landing pool.
"""

from __future__ import annotations

from collections.abc import Callable

from quiesce.kv.allocator import Allocation, PageState
from quiesce.kv.runs import Pages
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.memory import Memory
from quiesce.worker.handoff import Places
from quiesce.worker.seats import Seats
from quiesce.worker.staged_pages import StagedPages


class Part:
    """One rank's memory of a hand-off: writes land in `places` of `memory`, the request reads `pages` of the pool."""

    __slots__ = ("context", "is_committed", "lease", "memory", "own_pages", "pages", "places", "seat", "tainted")

    def __init__(self, lease: Allocation, context: Allocation, seat: int, memory: Memory, places: list[int]) -> None:
        self.lease, self.context, self.seat = lease, context, seat
        self.memory, self.places = memory, places
        self.pages: list[int] = context.pages.tolist()
        self.own_pages: Pages = context.pages
        self.is_committed = self.tainted = False


class DirectPages:
    """Lease and context are the same pages."""

    segmented = False

    def __init__(self, pool: Memory, seats: int) -> None:
        self._pool = pool
        self._seats = Seats(seats)

    @property
    def free_seats(self) -> int:
        return self._seats.free

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Beside the pool."""
        return ()

    @property
    def spare_pages(self) -> int:
        return 0

    def has_room_for(self, n_pages: int) -> bool:
        return n_pages <= self._pool.allocator.usable_pages

    def take(self, n_pages: int, owner: str) -> Part:
        """Raises OutOfPages."""
        taken = self._pool.allocator.allocate(n_pages, owner, PageState.RESERVED)
        return Part(taken, taken, self._seats.take(), self._pool, taken.pages.tolist())

    def written(self, part: Part | None) -> Memory:
        """What the writers of this part have before them; None when it is over."""
        return self._pool

    def give_up(self, part: Part) -> None:
        self._pool.allocator.release(part.own_pages)
        self._seats.give_back(part.seat)

    def over(self, part: Part) -> None:
        """Nobody may write there any more."""
        part.memory.close(part.places)

    def hold(self, part: Part) -> None:
        self._pool.allocator.mark(part.own_pages, PageState.HELD)

    def quarantine(self, part: Part) -> None:
        self._pool.allocator.mark(part.own_pages, PageState.QUARANTINED)

    def commit(self, part: Part) -> None:
        """The lease is the context: its pages and seat stay."""

    def release(self, part: Part) -> None:
        self._pool.allocator.release(part.own_pages)
        self._seats.give_back(part.seat)


class LandingPages:
    """Two allocations, of production's own `StagedPages`. `changed` as there."""

    def __init__(self, ground: Ground, pool: Memory, life: int, changed: Callable[[], None]) -> None:
        p = ground.p
        audit = ground.checks if p.audited else None
        self._ground, self._pool, self._life = ground, pool, life
        self._where = f"{pool.where} landing"
        self.landing = Memory(self._where, life, p.landing_pages, p.page_size, p.prefill_ranks, False, audit)
        self.segmented = p.transport == "stores"
        self._nowhere = Memory(self._where, life, p.landing_pages, p.page_size, p.prefill_ranks, False, None)
        self._nowhere.over = True
        self._pages = StagedPages(self.landing.allocator, p.landing_pages, pool.allocator, lambda lease: None, changed)

    @property
    def free_seats(self) -> int:
        return self._pages.free_seats

    @property
    def memories(self) -> tuple[Memory, ...]:
        return (self.landing,)

    @property
    def spare_pages(self) -> int:
        return self.landing.allocator.free_pages

    def has_room_for(self, n_pages: int) -> bool:
        return self._pages.has_room_for(n_pages)

    def take(self, n_pages: int, owner: str) -> Part:
        """Raises OutOfPages."""
        if n_pages > self.spare_pages:
            self._ground.marks.hit("landing pages are short")
        taken = self._pages.take(n_pages, owner)
        memory, places = self.landing, taken.lease.pages.tolist()
        if self.segmented:
            slices = self._ground.p.prefill_ranks
            memory = Memory(f"{self._where} of {owner}", self._life, n_pages, self._pool.page_size, slices, False, None)
            places = list(range(n_pages))
        return Part(taken.lease, taken.context, taken.seat, memory, places)

    def written(self, part: Part | None) -> Memory:
        """Whoever mapped a segment that is over, has it still."""
        if not self.segmented:
            return self.landing
        return self._nowhere if part is None else part.memory

    def give_up(self, part: Part) -> None:
        self._pages.give_up(Places(part.lease, part.context, part.seat))

    def over(self, part: Part) -> None:
        """What comes to a segment then, comes to nobody; pages of a landing pool may soon be somebody's."""
        if self.segmented:
            part.memory.over = True
        else:
            part.memory.close(part.places)

    # ------------------------------------------------------------ the copy

    def copy_begins(self, part: Part, attempt: int) -> None:
        """Landing pages have a reader, and the context a writer."""
        self._ground.checks.no_alias.leased(
            attempt, part.pages, self._pool.writers, self._pool.readers, self._pool.where
        )
        self._pages.copy_begins(part)
        part.memory.read_by(part.places, 1)
        self._pool.lease(part.pages, attempt)

    def copy_ends(self, part: Part, texts: list[int]) -> bool:
        """Each word of the landing pages is read once. Whether they bore the tag, and the copy's digest is right."""
        tag, ok = part.lease.tag, True
        for landed, slice_ in zip(part.memory.cells, self._pool.cells, strict=True):
            found = [landed[place] for place in part.places]
            ok = ok and found == [(tag, text) for text in texts]
            for page, cell in zip(part.pages, found, strict=True):
                slice_[page] = (part.context.tag, cell[1])
        part.memory.read_by(part.places, -1)
        self._pool.close(part.pages)
        self._pages.copy_ended(part)
        return ok

    # ------------------------------------------------------------ ends

    def hold(self, part: Part) -> None:
        """What awaits a proof is no page of the pool."""
        self._pages.hold(part)
        self._spared()

    def quarantine(self, part: Part) -> None:
        self._pages.quarantine(part)
        self._spared()

    def _spared(self) -> None:
        counts = self._pool.allocator.counts()
        self._ground.checks.no_leak.spared(counts["held"] + counts["quarantined"], self._pool.where)

    def commit(self, part: Part) -> None:
        part.is_committed = True
        self._pages.commit(part)

    def release(self, part: Part) -> None:
        if self._pages.is_copying(part):
            self._ground.marks.hit("copy outlives its hand-off")
        self._pages.release(part)


AnyPagesOfRank = DirectPages | LandingPages
