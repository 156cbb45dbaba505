"""Which workers can serve a request together, and which of them should."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from quiesce.errors import RequestRejected
from quiesce.ids import Incarnation
from quiesce.protocol import pairing
from quiesce.protocol.admission import Limits, admit_decode, admit_prefill
from quiesce.protocol.dispatch import DISPATCH_VERSION, NO_PREFIX_CACHE
from quiesce.protocol.pairing import Candidate
from quiesce.router.link import WorkerLink
from quiesce.router.order import Order

MOST_CAUSES, MOST_CAUSE_CHARS = 32, 512
"""Workers that are told of where no pair can be used, and of how much of what is the matter with each."""


class Pair(msgspec.Struct, frozen=True, eq=False):
    """A prefill and a decode worker, or one aggregated worker (`prefill` is None). All are connected."""

    decode: WorkerLink
    prefill: WorkerLink | None = None

    @property
    def workers(self) -> tuple[WorkerLink, ...]:
        return (self.decode,) if self.prefill is None else (self.prefill, self.decode)

    @property
    def lives(self) -> tuple[Incarnation, ...]:
        """Names this pair in this life of its workers."""
        return tuple(life_of(link) for link in self.workers)

    @property
    def prefill_name(self) -> str:
        return self.prefill.name if self.prefill else ""

    def admit(self, order: Order) -> int:
        """How many tokens the answer may have. Raises RequestRejected."""
        if self.prefill is not None:
            admit_prefill(order.prompt_tokens, limits_of(self.prefill))
        return admit_decode(order.prompt_tokens, order.max_tokens, limits_of(self.decode))


def limits_of(link: WorkerLink) -> Limits:
    welcome = link.welcome
    if welcome is None:
        return Limits(0, 0)
    return Limits(welcome.context_length, welcome.pool_tokens, welcome.landing_tokens)


def life_of(link: WorkerLink) -> Incarnation:
    return link.welcome.incarnation if link.welcome else Incarnation("")


def usable_pairs(links: Iterable[WorkerLink], model: str) -> list[Pair]:
    """Pairs that are ready now: same model, and decode has accepted prefill's HELLO."""
    ready = [link for link in links if unfit(link, model) == ""]
    prefills = {link.name: link for link in ready if _role(link) == "prefill"}
    decodes = [link for link in ready if _role(link) == "decode"]
    alone = [Pair(link) for link in ready if _role(link) == "aggregated"]
    return alone + [Pair(decode, prefills[name]) for decode in decodes for name in decode.peers if name in prefills]


def unfit(link: WorkerLink, model: str) -> str:
    """Why a worker cannot be used now, in words, or ""."""
    if link.welcome is None:
        return f"not connected: {link.trouble}" if link.trouble else "not connected"
    if other := misspoken(link):
        return other
    if link.welcome.model != model:
        return f"serves model {link.welcome.model}, not {model}"
    if not link.answers:
        return f"does not answer: nothing was heard from it since {link.heard}. Is it stopped, or its host?"
    if link.dismissed:
        return "is no longer named"
    return "" if link.load.ready else link.load.reason or "not ready"


def misspoken(link: WorkerLink) -> str:
    """That a connected worker's frames are of another version than ours, in words, or ""."""
    if link.welcome is None or link.welcome.version == DISPATCH_VERSION:
        return ""
    return f"speaks version {link.welcome.version} of the router's frames, not {DISPATCH_VERSION}"


def why_no_pair(links: Sequence[WorkerLink], model: str, objections: Sequence[str] = ()) -> str:
    """For the operator and for /readiness: what is missing, and what the router objects to.

    Bounded. Who is here and cannot be used comes first, who is not connected last: that may be a name without a worker.
    """
    if not links:
        return "; ".join(("no worker is known", *map(cut, objections)))
    found = problems(links, model)
    n_here = sum(link.welcome is not None for link, _ in found)
    shown = [f"{link.name}: {problem}" for link, problem in found[:MOST_CAUSES]]
    left = len(found) - len(shown)
    last = [f"and {left} more workers cannot be used"] if left else []
    causes = [*shown[:n_here], *objections, *shown[n_here:]]
    return "; ".join((*map(cut, causes), *last)) or "no decode worker has a connection to a prefill worker"


def problems(links: Sequence[WorkerLink], model: str) -> list[tuple[WorkerLink, str]]:
    """Who cannot be used now and why; those that are here first."""
    found = [(link, problem) for link in links if (problem := unfit(link, model))]
    return sorted(found, key=lambda each: each[0].welcome is None)


def cut(cause: str) -> str:
    return cause if len(cause) <= MOST_CAUSE_CHARS else f"{cause[: MOST_CAUSE_CHARS - 3]}..."


def choose(
    pairs: Sequence[Pair],
    order: Order,
    avoid: frozenset[Incarnation],
    turn: int,
    doubts: Callable[[tuple[Incarnation, ...]], bool] = lambda lives: False,
    warmth: Callable[[Incarnation], float] = lambda life: 0.0,
) -> tuple[Pair, int]:
    """The pair that `pairing.choose` picks among those that admit the order, and the answer's limit in tokens.

    Pairs that nobody doubts come first, then those with the fewest lives in `avoid` (they took part when this request
    failed before); `warmth` is what `Warmth.shares` gives. Raises a pair's RequestRejected when none admits: no worker
    hears of such a request.
    """
    admitting = _admitting(pairs, order)
    ranks = [(doubts(pair.lives), len(avoid.intersection(pair.lives))) for pair in admitting]
    best = min(ranks)
    best_pairs = [pair for pair, rank in zip(admitting, ranks, strict=True) if rank == best]
    pair = _cheapest(best_pairs, turn, lambda link: _usable_warmth(link, order.prompt_tokens, warmth))
    return pair, pair.admit(order)


def _usable_warmth(link: WorkerLink, prompt_tokens: int, warmth: Callable[[Incarnation], float]) -> float:
    """None without a cache, nor where the rest of the prompt would wait for pages: no cache is worth such a wait."""
    if link.welcome is None or NO_PREFIX_CACHE in link.welcome.facts:
        return 0.0
    share = warmth(life_of(link))
    return share if link.load.free_tokens >= (1 - share) * prompt_tokens else 0.0


def _admitting(pairs: Sequence[Pair], order: Order) -> list[Pair]:
    admitting = []
    rejected = RequestRejected("No worker can serve now.", code="no_workers", status=503)
    for pair in pairs:
        try:
            pair.admit(order)
        except RequestRejected as error:
            rejected = error
        else:
            admitting.append(pair)
    if not admitting:
        raise rejected
    return _with_room(admitting)


def _with_room(pairs: list[Pair]) -> list[Pair]:
    """The pairs where the next request may still wait. Raises RequestRejected (429), before any worker is asked."""
    roomy = [pair for pair in pairs if not any(is_full(link) for link in pair.workers)]
    if not roomy:
        raise RequestRejected("Too many requests wait at every worker.", code="queue_full", status=429)
    return roomy


def is_full(link: WorkerLink) -> bool:
    """Whether a worker's door would refuse whatever comes next, as far as it has told."""
    return link.welcome is not None and link.load.queued >= max(1, link.welcome.max_queue)


def _cheapest(pairs: Sequence[Pair], turn: int, warmth: Callable[[WorkerLink], float]) -> Pair:
    """`pairing.choose` over these pairs; an aggregated worker is its own partner."""
    by_names = {(_partner(pair).name, pair.decode.name): pair for pair in pairs}
    decodes = _candidates([pair.decode for pair in pairs], lambda link: _partners(pairs, link), warmth)
    prefills = _candidates([_partner(pair) for pair in pairs], lambda link: (), warmth)
    chosen = pairing.choose(decodes, prefills, turn)
    return by_names[chosen] if chosen in by_names else pairs[0]


def _candidates(
    links: Iterable[WorkerLink],
    partners: Callable[[WorkerLink], tuple[str, ...]],
    warmth: Callable[[WorkerLink], float],
) -> list[Candidate]:
    unique = {link.name: link for link in links}
    return [Candidate(each.name, each.load_now, partners(each), warmth(each)) for each in unique.values()]


def _partners(pairs: Sequence[Pair], decode: WorkerLink) -> tuple[str, ...]:
    return tuple(_partner(pair).name for pair in pairs if pair.decode is decode)


def _partner(pair: Pair) -> WorkerLink:
    return pair.prefill or pair.decode


def _role(link: WorkerLink) -> str:
    return link.welcome.role if link.welcome else ""
