"""Two real processes of a pull and what a check may do with them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from quiesce.errors import PeerUnusable
from quiesce.transport.conformance.candidates import candidate
from quiesce.transport.conformance.stage import TAG, Actor, Scene

WINDOW = 9000
NOT_OFFERED = "it offers no pull"


class PullStage(Scene):
    """A lender whose source holds pattern 1, a puller with a fresh pool of zeros, joined."""

    def __init__(
        self, backend: str, *, page_bytes: int, pages: int, call_deadline_s: float, guarded: bool = False
    ) -> None:
        self.lender, self.puller = Actor("lender"), Actor("puller")
        super().__init__(self.puller, self.puller, page_bytes, pages)
        self.port = self.lender.call("open", backend, page_bytes, pages, 0)
        self.lender.call("fill", 1)
        if guarded:
            self.puller.call("between_guards")
        self.puller.call("open", backend, page_bytes, pages, call_deadline_s)
        self.join()

    def join(self) -> None:
        """The lender describes its pool, watches the puller, and the puller opens the source."""
        self.lender.ask("describe")
        descriptor, fds = self.lender.answer()
        self.lender.call("watch", self.puller.pid)
        self.puller.call("open_source", descriptor, fds=fds)
        for fd in fds:
            os.close(fd)

    def lend(self, pages: Sequence[int], window: int = WINDOW) -> None:
        self.lender.call("lend", window, list(pages))

    def launch(
        self, id_: int, source: Sequence[int], target: Sequence[int], window: int = WINDOW, tag: int = TAG
    ) -> None:
        self.puller.call("launch", id_, list(source), window, list(target), tag)

    def launch_all(self, id_: int) -> None:
        self.launch(id_, self.all_pages(), self.all_pages())

    def warm_up(self) -> None:
        """Connections are made at the first read: let one page come."""
        self.launch(0, [0], [0])
        self.ends(1)

    def holds_any(self, seed: int) -> int:
        """How many pages hold their pattern of that filling."""
        return sum(self.holds(self.all_pages(), seed, self.all_pages()))

    def close(self) -> None:
        self.puller.close()
        self.lender.close()


@contextlib.contextmanager
def pull_stage(
    backend: str, *, page_bytes: int = 4096, pages: int = 32, call_deadline_s: float = 60.0, guarded: bool = False
) -> Iterator[PullStage]:
    """`guarded`: the puller's pool has mappings of nobody's around it (`guard`)."""
    if candidate(backend).lender is None:
        raise PeerUnusable(NOT_OFFERED)
    made = PullStage(backend, page_bytes=page_bytes, pages=pages, call_deadline_s=call_deadline_s, guarded=guarded)
    try:
        yield made
    finally:
        made.close()
