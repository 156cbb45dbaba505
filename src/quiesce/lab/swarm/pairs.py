"""Which workers can serve a request together now, which should, and what the circuit breakers think of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from quiesce.errors import RequestRejected
from quiesce.lab.swarm.ground import Ground
from quiesce.protocol import admission, pairing
from quiesce.protocol.breaker import Phase
from quiesce.protocol.pairing import Candidate
from quiesce.router.breakers import Breakers

if TYPE_CHECKING:
    from quiesce.lab.swarm.cluster import Cluster
    from quiesce.lab.swarm.decode import DecodeWorker
    from quiesce.lab.swarm.prefill import PrefillWorker
    from quiesce.lab.swarm.router import Request

    Pair: TypeAlias = tuple[PrefillWorker, DecodeWorker]

PREFILL_WINDOW = 4
LOOK_S = 0.5
MOVES = {Phase.SUSPECTED: "breaker suspected", Phase.OPEN: "breaker open", Phase.CLOSED: "breaker closed again"}


class Pairs:
    """Counts what is under way at whom; `breakers` are the router's own, with simulated time."""

    def __init__(self, ground: Ground, cluster: Cluster) -> None:
        self._ground, self._cluster = ground, cluster
        self._under_way: Counter[str] = Counter()
        self._awaited: Counter[tuple[str, str]] = Counter()
        self._turn = 0
        self.breakers = Breakers(ground.p.breaker_failures, self._moved, lambda: ground.loop.now_s)
        self.breakers.changed = self._plan_probe
        self._planned = False
        self._usable: list[Pair] | None = None
        self._doubted = False

    # ------------------------------------------------------------ who may serve

    def connected(self) -> list[Pair]:
        """Pairs whose halves answer the router and have a stream to each other."""
        prefills = [w for w in self._cluster.prefills if self._cluster.answers(w)]
        return [
            (prefill, decode)
            for decode in self._cluster.decodes
            if self._cluster.answers(decode)
            for prefill in prefills
            if self._cluster.network.stream(decode.incarnation, prefill.incarnation) is not None
        ]

    def usable(self) -> list[Pair]:
        """Pairs that clients may be sent to; looked up again only when something has changed."""
        if self._usable is None:
            self.learn()
            pairs = self.connected()
            self._usable = [(p, d) for p, d in pairs if self.breakers.admits((p.incarnation, d.incarnation))]
            self._doubted = bool(self.breakers.names_in(Phase.SUSPECTED))
        return self._usable

    def changed(self) -> None:
        """A worker, a stream or a breaker is not what it was."""
        self._usable = None

    def learn(self) -> None:
        """Tell the breakers who is here."""
        here = list(self._cluster.workers)
        links = [SimpleNamespace(name=w.name, welcome=SimpleNamespace(incarnation=w.incarnation)) for w in here]
        self.breakers.learn(cast("Any", links))

    def choose(self, pairs: Sequence[Pair], request: Request) -> tuple[PrefillWorker, DecodeWorker, int]:
        """The pair and the answer's limit in tokens. Raises RequestRejected when no pair admits it or has room."""
        admitting = self._admitting(pairs, request)
        if self._doubted or request.failed:
            ranks = {pair: self._rank(pair, request) for pair in admitting}
            best = min(ranks.values())
            admitting = [pair for pair in admitting if ranks[pair] == best]
        prefill, decode = self._least_loaded(admitting)
        return prefill, decode, admission.admit_decode(request.text.n_tokens, request.ask.most, decode.limits)

    def _rank(self, pair: Pair, request: Request) -> tuple[bool, int]:
        lives = (pair[0].incarnation, pair[1].incarnation)
        return self.breakers.doubts(lives), len(request.failed.intersection(lives))

    def _admitting(self, pairs: Sequence[Pair], request: Request) -> list[Pair]:
        """All workers of a role have equal limits here, so one pair's doors are asked for all."""
        if not pairs:
            raise RequestRejected("No worker can serve now.", code="no_workers", status=503)
        prefill, decode = pairs[0]
        admission.admit_prefill(request.text.n_tokens, prefill.limits)
        admission.admit_decode(request.text.n_tokens, request.ask.most, decode.limits)
        most = max(1, self._ground.p.max_queue)
        roomy = [(p, d) for p, d in pairs if p.queued < most and d.queued < most]
        if not roomy:
            raise RequestRejected("Too many requests wait at every worker.", code="queue_full", status=429)
        return roomy

    def _least_loaded(self, pairs: Sequence[Pair]) -> Pair:
        self._turn += 1
        if len(pairs) == 1:
            return pairs[0]
        prefills, decodes = {p.name: p for p, _ in pairs}, {d.name: d for _, d in pairs}
        partners: dict[str, list[str]] = {name: [] for name in decodes}
        for prefill, decode in pairs:
            partners[decode.name].append(prefill.name)
        chosen = pairing.choose(
            [Candidate(name, d.load + self._under_way[name], tuple(partners[name])) for name, d in decodes.items()],
            [Candidate(name, p.load + self._under_way[name]) for name, p in prefills.items()],
            self._turn,
        )
        return pairs[0] if chosen is None else (prefills[chosen[0]], decodes[chosen[1]])

    # ------------------------------------------------------------ who is how busy

    def has_room(self, pair: Pair) -> bool:
        batch = self._ground.p.max_running
        prefill, decode = pair
        if self._under_way[decode.name] >= batch + max(PREFILL_WINDOW, batch // 4):
            return False
        return self._awaited[prefill.name, decode.name] < PREFILL_WINDOW

    def began(self, prefill: PrefillWorker, decode: DecodeWorker) -> None:
        self._under_way[prefill.name] += 1
        self._under_way[decode.name] += 1
        self._awaited[prefill.name, decode.name] += 1

    def handed_off(self, prefill: PrefillWorker, decode: DecodeWorker) -> None:
        """The prefill half of a try has ended."""
        self._under_way[prefill.name] -= 1
        self._awaited[prefill.name, decode.name] -= 1

    def ended(self, decode: DecodeWorker) -> None:
        """So has the decode half."""
        self._under_way[decode.name] -= 1

    # ------------------------------------------------------------ probes

    def _moved(self, name: str, phase: Phase) -> None:
        if phase in MOVES:
            self._ground.marks.hit(MOVES[phase])
        self._ground.tell(f"the breaker of {name} is {phase}")

    def _plan_probe(self) -> None:
        self.changed()
        if not self._planned:
            self._planned = True
            self._ground.loop.after(LOOK_S, None, self._probe_due)

    def _probe_due(self) -> None:
        """Probe every pair whose probe is due; look again while any is to come."""
        self._planned = False
        self.learn()
        router, now_s = self._cluster.router, self._ground.loop.now_s
        due = [
            (pair, self.breakers.probe_due_s((pair[0].incarnation, pair[1].incarnation))) for pair in self.connected()
        ]
        for (prefill, decode), due_s in due:
            if due_s is not None and due_s <= now_s and not router.probing:
                router.probe(prefill, decode)
        if self.breakers.names_in(Phase.SUSPECTED, Phase.OPEN, Phase.HALF_OPEN):
            self._plan_probe()

    def troubled(self) -> list[str]:
        """Breakers that are not closed."""
        return self.breakers.names_in(Phase.SUSPECTED, Phase.OPEN, Phase.HALF_OPEN)
