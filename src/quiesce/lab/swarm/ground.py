"""What everything in a simulated cluster stands on, and what things are called."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from quiesce.ids import Attempt, Incarnation, Peer
from quiesce.lab.swarm.checkers import Checkers
from quiesce.lab.swarm.fates import Fates, Key
from quiesce.lab.swarm.loop import Loop
from quiesce.lab.swarm.marks import Marks
from quiesce.lab.swarm.parameters import Parameters
from quiesce.lab.swarm.workload import Texts
from quiesce.protocol import trace

REMEMBERED = 20_000
LINES = 400


class Tale:
    """Which request and try an attempt is about, and how often which message was said in it."""

    __slots__ = ("ask", "said", "turn")

    def __init__(self, ask: int, turn: int) -> None:
        self.ask = ask
        self.turn = turn
        self.said: dict[Key, int] = {}

    @property
    def name(self) -> str:
        return f"{self.ask}.{self.turn}"


NO_TALE = Tale(0, 0)


class Ground:
    """One run's time, chance, checkers and marks. `story` has its last events in words, if they are wanted."""

    def __init__(
        self,
        p: Parameters,
        told: frozenset[str] | None = None,
        muted: frozenset[str] = frozenset(),
        *,
        tells: bool = False,
    ) -> None:
        self.p = p
        self.loop = Loop()
        self.fates = Fates(p.seed, p.rates(), told)
        self.checks = Checkers(muted)
        self.marks = Marks()
        self.texts = Texts(p.page_size)
        self.story: deque[str] | None = deque(maxlen=LINES) if tells else None
        self._tales: dict[tuple[Incarnation, Attempt], Tale] = {}

    def minted(self, life: Incarnation, attempt: Attempt, ask: int, turn: int) -> None:
        if len(self._tales) >= REMEMBERED:
            for key in list(self._tales)[: REMEMBERED // 2]:
                del self._tales[key]
        self._tales[life, attempt] = Tale(ask, turn)

    def tale(self, life: Incarnation, attempt: Attempt) -> Tale:
        return self._tales.get((life, attempt), NO_TALE)

    def tell(self, line: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.loop.now_s:.6f} {line}")

    def tell_step(self, who: str, fact: msgspec.Struct, effects: Iterable[msgspec.Struct]) -> None:
        if self.story is not None:
            self.story.append(f"{self.loop.now_s:.6f} {trace.line(who, fact, effects)}")


def life_name(role: str, index: int, life: int) -> Incarnation:
    """`p0`, in its later lives `p0'`, `p0''`, `p0'3`, ...: short, because it stands in every line of a story."""
    return Incarnation(f"{role[0]}{index}{chr(39) * life if life < 3 else f'{chr(39)}{life}'}")


def rank_name(worker: str, rank: int, ranks: int) -> str:
    return f"{worker} rank {rank}" if ranks > 1 else worker


def peer_of(life: Incarnation, rank: int) -> Peer:
    return Peer(rank, life)
