"""Where hand-offs land at all ranks of a simulated decode worker."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from quiesce.ids import Attempt, AttemptKey
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.landing import AnyPagesOfRank, DirectPages, LandingPages
from quiesce.lab.swarm.leasing import Handoff
from quiesce.lab.swarm.memory import Memory


class Landings:
    """`seats` is how many hand-offs may land directly at once; staged, as many as there are landing pages."""

    def __init__(
        self, ground: Ground, memories: Sequence[Memory], life: int, seats: int, changed: Callable[[], None]
    ) -> None:
        self.ranks: list[AnyPagesOfRank]
        if ground.p.landing == "staged":
            self.ranks = [LandingPages(ground, memory, life, changed) for memory in memories]
        else:
            self.ranks = [DirectPages(memory, seats) for memory in memories]

    @property
    def staged(self) -> list[LandingPages]:
        return [each for each in self.ranks if isinstance(each, LandingPages)]

    @property
    def memories(self) -> list[Memory]:
        """What lies beside the pools."""
        return [memory for each in self.ranks for memory in each.memories]

    @property
    def has_seats(self) -> bool:
        return all(each.free_seats for each in self.ranks)

    def has_room_for(self, n_pages: int) -> bool:
        return all(each.has_room_for(n_pages) for each in self.ranks)

    def written(self, key: AttemptKey, handoff: Handoff | None) -> Memory:
        """The memory that a lease is about, as its writers have it."""
        rank = key.decode.rank
        return self.ranks[rank].written(None if handoff is None else handoff.parts[rank])

    # ------------------------------------------------------------ ends

    def hold(self, attempt: Attempt, handoff: Handoff) -> None:
        for each, part in zip(self.ranks, handoff.parts, strict=True):
            part.memory.held.add(attempt)
            each.hold(part)

    def quarantine(self, handoff: Handoff, released: Container[int]) -> None:
        """At all ranks that have not released it."""
        for rank, (each, part) in enumerate(zip(self.ranks, handoff.parts, strict=True)):
            if rank not in released:
                each.quarantine(part)

    def revoke(self, handoff: Handoff) -> bool:
        """Whether it could be: what comes to a segment from now on, comes to nobody."""
        revoked = [(each, part) for each, part in zip(self.ranks, handoff.parts, strict=True) if each.segmented]
        for each, part in revoked:
            each.over(part)
        return bool(revoked)
