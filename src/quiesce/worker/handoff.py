"""One hand-off at decode: what the machine's attempt number stands for here."""

from __future__ import annotations

import time

import msgspec
import numpy as np

from quiesce.ids import PageTag, Peer
from quiesce.kv.allocator import Allocation
from quiesce.kv.prefix_cache import PrefixCache, Reader
from quiesce.kv.runs import Pages
from quiesce.worker.request import Request
from quiesce.worker.sequence import Generation, Sequence


class Places(msgspec.Struct, frozen=True, eq=False):
    """Memory of one hand-off: the `lease` that peers may write, its `seat`, and the pool's pages that its `context` is
    read from. Landed directly, lease and context are one allocation.
    """

    lease: Allocation
    context: Allocation
    seat: int


class Handoff:
    """The memory of one attempt, until its release. `tainted`: the context's pages must not circulate again.

    `reader` shares the prefix that decode has already, `held_pages`; at commit it may take over context pages, too:
    `own_pages` are those that it did not.
    """

    def __init__(self, request: Request, generation: Generation, places: Places, reader: Reader) -> None:
        self.request = request
        self.generation = generation
        self.lease = places.lease
        self.context = places.context
        self.seat = places.seat
        self.reader = reader
        self.held_pages = len(reader.pages)
        self.own_pages: Pages = places.context.pages
        self.state = "reserved"
        self.awaiting: tuple[Peer, ...] = ()
        self.started_s = time.monotonic()
        self.committed_s = self.started_s
        self.held_since_s: float | None = None
        self._charged_s = 0.0
        self.tainted = False
        self.told: set[Peer] = set()

    def cache(self, prefixes: PrefixCache) -> None:
        """Verified and committed: full pages may be shared. Those that are will not be released with the lease."""
        submit = self.request.submit
        pages = np.concatenate([self.reader.pages, self.context.pages])
        prefixes.insert(self.reader, submit.salt, submit.token_ids, pages)
        self.own_pages = pages[len(self.reader.pages) :]

    def keep(self, prefixes: PrefixCache, sequence: Sequence) -> Pages:
        """The answer ended well: full pages of prompt and answer may be shared. The batch's pages that were not taken.

        The context's last page, which the answer went on filling, may be among those that were.
        """
        submit = self.request.submit
        tokens = submit.token_ids + sequence.computed_ids
        rest = prefixes.deposit(self.reader, submit.salt, tokens, sequence.pages)
        self.own_pages = self.own_pages[np.isin(self.own_pages, rest)]
        return sequence.own_pages[np.isin(sequence.own_pages, rest)]

    def commit(self) -> PageTag:
        """Nothing may be written any more: the tag whose permission ends."""
        self.state, self.committed_s = "committed", time.monotonic()
        return self.lease.tag

    @property
    def is_committed(self) -> bool:
        return self.state == "committed"

    def hold(self, awaiting: tuple[Peer, ...]) -> None:
        self.state, self.awaiting = "holding", awaiting
        self.held_since_s = self._charged_s = time.monotonic()

    @property
    def held_s(self) -> float | None:
        return None if self.held_since_s is None else time.monotonic() - self.held_since_s

    def charge(self) -> float:
        """Leased pages times seconds of the hold since it was charged last."""
        if self.held_since_s is None:
            return 0.0
        now_s = time.monotonic()
        passed_s, self._charged_s = now_s - self._charged_s, now_s
        return passed_s * len(self.lease.pages)
