"""One request at prefill, from its door to the last proof about its source pages."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from quiesce.ids import AttemptKey
from quiesce.kv.prefix_cache import Reader
from quiesce.kv.prefix_tree import NO_PAGES
from quiesce.kv.runs import Pages
from quiesce.protocol.receiver_io import Proof
from quiesce.worker.prompt import Prompt
from quiesce.worker.request import Request


class Job:
    """`pages` is None until the prompt's turn to be computed. `release` waits while the engine is at work on them.

    `reader` shares the first of them with the prefix cache; `own_pages` are the others: what is held, and freed in the
    end. `held_pages` of the prompt are decode's already.

    `places` has the destination's pages of each attempt, in prompt order, once the first write needed them. `lent_to`
    are attempts whose decode may be reading the pages, where it reads.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.prompt: Prompt | None = None
        self.reader: Reader | None = None
        self.own_pages: NDArray[np.int32] = NO_PAGES
        self.held_pages = 0
        self.stopped = False
        self.computing = False
        self.poisoned = False
        self.payload_digest = ""
        self.places: dict[AttemptKey, Pages] = {}
        self.lent_to: set[AttemptKey] = set()
        self.release: Proof | None = None
        self.started_s = time.monotonic()
        self.stopped_s: float | None = None
        self._charged_s = 0.0

    def begin(self, reader: Reader, own_pages: NDArray[np.int32]) -> None:
        """The prompt has its pages, those of `reader` first."""
        self.reader, self.own_pages = reader, own_pages
        pages = np.concatenate([reader.pages, own_pages])
        self.prompt = Prompt(self.request, pages, len(reader.pages), self.held_pages)

    @property
    def pages(self) -> NDArray[np.int32] | None:
        return None if self.prompt is None else self.prompt.pages

    @property
    def attempt(self) -> int:
        """Decode's number of the hand-off, the first rank's of several; 0 until the first page left."""
        return min((key.attempt for key in (*self.lent_to, *self.places)), default=0)

    @property
    def state(self) -> str:
        if self.poisoned:
            return "quarantined"
        if self.release is not None or (self.stopped and self.pages is not None):
            return "holding"
        if self.lent_to:
            return "lent"
        if self.computing:
            return "computing"
        return "sending" if self.pages is not None else "waiting"

    def lend(self, key: AttemptKey) -> None:
        self.lent_to.add(key)

    def take_back(self, key: AttemptKey) -> None:
        self.lent_to.discard(key)

    def stop(self) -> None:
        """Stop computing at the next layer. From now on its pages, if it has any, are held."""
        if self.stopped_s is None:
            self.stopped_s = self._charged_s = time.monotonic()
        self.stopped = True
        if self.prompt is not None:
            self.prompt.abort.aborted = True

    @property
    def held_s(self) -> float:
        """Seconds since the request ended while it had pages; 0.0 when they are not held."""
        if self.stopped_s is None or self.pages is None:
            return 0.0
        return time.monotonic() - self.stopped_s

    def charge(self) -> float:
        """Pages times seconds of the hold since it was charged last."""
        if self.stopped_s is None or self.pages is None:
            return 0.0
        now_s = time.monotonic()
        passed_s, self._charged_s = now_s - self._charged_s, now_s
        return passed_s * len(self.own_pages)
