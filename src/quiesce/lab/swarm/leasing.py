"""How a simulated decode worker takes pages and seats for a hand-off: what is cached is shared, headroom is left."""

from __future__ import annotations

from collections.abc import Sequence

from quiesce.errors import OutOfPages
from quiesce.kv.prefix_cache import Reader
from quiesce.lab.swarm import signs
from quiesce.lab.swarm.batch import Batch
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.landing import AnyPagesOfRank, Part
from quiesce.lab.swarm.memory import Memory
from quiesce.lab.swarm.submission import Submission
from quiesce.lab.swarm.workload import Text
from quiesce.worker.headroom import growth_pages, leaves_headroom


class Handoff:
    """The memory of one attempt at every rank, and who shares what decode has already."""

    __slots__ = ("held", "left", "lent", "parts", "quarantined", "readers", "submission")

    def __init__(self, submission: Submission, parts: list[Part], readers: list[Reader]) -> None:
        self.submission = submission
        self.readers = readers
        self.held = len(readers[0].pages)
        self.parts = parts
        self.lent: list[list[int]] = [each.pages.tolist() for each in readers]
        self.left = len(parts)
        self.quarantined = False


class Leasing:
    """Of all ranks at once: they act on one decision."""

    def __init__(
        self, ground: Ground, memories: list[Memory], batch: Batch, landings: Sequence[AnyPagesOfRank]
    ) -> None:
        self._ground, self._memories, self._batch, self._landings = ground, memories, batch, landings
        self._in_vain: tuple[object, ...] = ()

    def take(self, submission: Submission, under_way: Sequence[Submission]) -> Handoff | None:
        """Share what is cached of the prompt, take pages for the rest; None when there are too few now."""
        now = (
            submission.request,
            self._batch.running,
            len(under_way),
            *[m.allocator.available_pages for m in self._memories],
            *[landing.spare_pages for landing in self._landings],
        )
        if now == self._in_vain:
            return None  # as it was when it was tried in vain
        readers = self._read_prefix(submission.text)
        n_pages = len(submission.text.labels) - len(readers[0].pages)
        parts: list[Part] = []
        try:
            for memory, landing in zip(self._memories, self._landings, strict=True):
                if not self._may_take(memory, n_pages, submission, under_way):
                    raise OutOfPages(f"{n_pages} pages are wanted")
                parts.append(landing.take(n_pages, submission.request))
        except OutOfPages:
            for landing, part in zip(self._landings, parts, strict=False):
                landing.give_up(part)
            for reader in readers:
                reader.leave()
            self._in_vain = now
            return None
        return Handoff(submission, parts, readers)

    def _read_prefix(self, text: Text) -> list[Reader]:
        """Ranks act on one decision: all share as much as the one that has least."""
        readers = [memory.prefixes.read(text.salt, text.tokens) for memory in self._memories]
        least = min(len(reader.pages) for reader in readers)
        for rank, memory in enumerate(self._memories):
            if len(readers[rank].pages) > least:
                readers[rank].leave()
                tokens = text.tokens[: (least * memory.page_size + 1) * 4]
                readers[rank] = memory.prefixes.read(text.salt, tokens)
        for memory, reader in zip(self._memories, readers, strict=True):
            signs.shared(self._ground, memory, reader, text, "decode")
        return readers

    def _may_take(self, memory: Memory, n_pages: int, submission: Submission, under_way: Sequence[Submission]) -> bool:
        p = self._ground.p
        whole = len(submission.text.labels)
        steps = min(submission.max_tokens - 1, p.headroom_tokens)
        own = growth_pages(submission.text.n_tokens, whole, steps, p.page_size)
        others = self._promised_pages(under_way) if self._batch.running or under_way else None
        return leaves_headroom(memory.allocator.available_pages, n_pages, own, others)

    def _promised_pages(self, under_way: Sequence[Submission]) -> int:
        p = self._ground.p
        growth = (
            growth_pages(s.text.n_tokens, len(s.text.labels), min(s.max_tokens - 1, p.headroom_tokens), p.page_size)
            for s in under_way
        )
        return self._batch.growth_pages(p.headroom_tokens) + sum(growth)
