"""What happens to processes and to the streams between them, drawn as a list: when, what, to whom, for how long."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from quiesce.lab.swarm.parameters import Parameters


class Fault(msgspec.Struct, frozen=True, order=True):
    """`what` is crash, stall, cut, or "cut the router"; a cut between two workers names both."""

    at_s: float
    what: str
    worker: str
    other: str = ""
    lasts_s: float = 0.0

    def __str__(self) -> str:
        where = f"{self.worker} from {self.other}" if self.other else self.worker
        return f"at {self.at_s!r} s {self.what} {where} for {self.lasts_s!r} s"


def schedule(p: Parameters, seconds: float) -> tuple[Fault, ...]:
    """The faults of one run, in order."""
    rng = random.Random(f"quiesce swarm {p.seed} faults")
    return tuple(sorted(_drawn(p, rng, seconds)))


def names(p: Parameters) -> tuple[list[str], list[str]]:
    return [f"prefill {k}" for k in range(p.prefills)], [f"decode {k}" for k in range(p.decodes)]


def _drawn(p: Parameters, rng: random.Random, seconds: float) -> Iterator[Fault]:
    prefills, decodes = names(p)
    for kind, rate, workers in (
        ("crash", p.prefill_crashes, prefills),
        ("crash", p.decode_crashes, decodes),
        ("stall", p.stalls, prefills + decodes),
        ("cut the router", p.router_cuts, prefills + decodes),
    ):
        for worker in workers:
            for at_s in _times(rng, rate, seconds):
                yield Fault(at_s, kind, worker, "", _lasting(p, rng))
    for decode in decodes:
        for prefill in prefills:
            for at_s in _times(rng, p.cuts / max(1, len(prefills) * len(decodes) / 2), seconds):
                yield Fault(at_s, "cut", decode, prefill, _lasting(p, rng))


def _times(rng: random.Random, per_hour: float, seconds: float) -> Iterator[float]:
    at_s = 0.0
    while per_hour:
        at_s += rng.expovariate(per_hour / 3600)
        if at_s >= seconds:
            return
        yield round(at_s, 6)


def _lasting(p: Parameters, rng: random.Random) -> float:
    return round(0.01 + p.longest_down_s * rng.random() ** 2, 6)
