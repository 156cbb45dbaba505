"""How large a world is, whom it serves, and how often each fault may strike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quiesce.ids import Digest, RequestId


@dataclass(frozen=True, order=True)
class Req:
    """A request of the world: equal letters mean equal prompts."""

    name: str
    room: int
    prompt: str

    @property
    def id(self) -> RequestId:
        return RequestId(self.name)

    @property
    def digest(self) -> Digest:
        return Digest(self.prompt * 32)


A, B = Req("A", 7, "a"), Req("B", 7, "b")  # same room, another prompt
TWIN = Req("C", 7, "a")  # same room and same prompt as A
RETRY = Req("R", 8, "a")  # the prompt of A on a fresh room


@dataclass(frozen=True)
class Config:
    """How large a world is and how often each fault may strike."""

    requests: tuple[Req, ...] = (A, B)
    arrivals: tuple[tuple[int, Req], ...] | None = None  # (prefill rank, request); None: everywhere
    prefills: int = 1
    ranks: int = 1
    pages: int = 1
    lease_pages: int = 1
    chunks: int = 1
    window: int = 2
    batch: int = 0
    fence: bool = False  # TryFence works; in pull, CloseEndpoint does
    unsafe: bool = False
    again: bool = False  # a crashed prefill's requests are sent to its next life
    covered: bool = True  # coverage is checked at commit
    fresh: bool = True  # memory is new in every life
    early: bool = True  # no_early_ack is checked; without it, does what it warns of really happen?
    wild: bool = True  # so are no_wild_write and no_wild_read; without them, does anybody read what is not theirs?
    budget: tuple[tuple[str, int], ...] = ()
    cache: bool = False  # each rank has a prefix tree; all pages of a prompt but the last may be shared
    sources: int = 0  # pages of each prefill rank's pool, taken at arrival; 0 = as many as anybody wants
    staged: bool = False  # writes land in memory private to their attempt; decode copies, then verifies the copy
    pull: bool = False  # decode reads what prefill lends
    revoke: bool = False  # pull: prefill's backend can revoke a window
    deaths: bool = False  # pull: that a decode life is over is known for certain, in its own time
    refuses: bool = True  # pull: a revoked window serves nobody
    heal: int = 0  # heal every n-th state; 0 = never
    limit: int = 60_000


def config(*, requests: tuple[Req, ...] = (A, B), **given: Any) -> Config:
    """A Config; faults (`abort=1`, `loss=1`, ...) are named like its fields."""
    fields = Config.__dataclass_fields__
    faults = {name: given.pop(name) for name in list(given) if name not in fields}
    return Config(requests=requests, budget=tuple(sorted(faults.items())), **given)
