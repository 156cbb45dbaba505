"""One request at one rank of a simulated prefill worker, from its door to the last proof about its source pages."""

from __future__ import annotations

from quiesce.ids import AttemptKey
from quiesce.kv.prefix_cache import Reader
from quiesce.kv.prefix_tree import NO_PAGES
from quiesce.kv.runs import Pages
from quiesce.lab.swarm.submission import Submission
from quiesce.protocol.receiver_io import Proof


class Job:
    """`places` has the pages that each attempt's writes go to, or in pull those that it was lent. `lent_to` are
    attempts whose decode may be reading, `committed` those that said that they have read.
    """

    __slots__ = (
        *("cached", "committed", "computed", "computing", "held", "lent_to", "own", "pages", "places", "poisoned"),
        *("proof", "reader", "sent", "stopped", "submission"),
    )

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.reader: Reader | None = None
        self.own: Pages = NO_PAGES
        self.pages: list[int] = []
        self.places: dict[AttemptKey, list[int]] = {}
        self.lent_to: set[AttemptKey] = set()
        self.committed: set[AttemptKey] = set()
        self.held = self.computed = self.sent = 0
        self.cached = self.computing = self.poisoned = self.stopped = False
        self.proof: Proof | None = None

    @property
    def is_aside(self) -> bool:
        """It waits for no turn here: decode has to say something first."""
        return self.poisoned or bool(self.lent_to)
