"""What one seed decides about a cluster, its faults and its clients, before anything runs."""

from __future__ import annotations

import random
from typing import Any, Literal, TypeVar

import msgspec

from quiesce.lab.swarm import fates

N = TypeVar("N")


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of faults of processes are per worker and hour, those of messages and writes are shares of all."""

    seed: int
    # the cluster
    prefills: int
    decodes: int
    prefill_ranks: int
    decode_ranks: int
    page_size: int
    prefill_pages: int
    decode_pages: int
    context_tokens: int
    chunk_tokens: int
    batch_pages: int
    window: int
    max_running: int
    max_queue: int
    headroom_tokens: int
    prefix_cache: bool
    audited: bool
    # time
    chunk_s: float
    step_s: float
    page_s: float
    message_s: float
    pace_spread: float
    # messages and writes
    ordered: bool
    losses: float
    copies: float
    delays: float
    longest_delay_s: float
    strays: float = 0.0
    frames_held_up: float = 0.0
    writes_failed: float
    writes_unknown: float
    writes_unknown_landing: float
    writes_slow: float
    slowest_write_s: float
    writes_torn: float = 0.0
    transport: Literal["stores", "network"]
    transfer: Literal["push", "pull"] = "push"
    landing: Literal["direct", "staged"] = "direct"
    landing_pages: int = 0
    fence: bool
    fence_policy: Literal["quarantine", "fence"]
    quarantine_budget: float
    # processes
    prefill_crashes: float
    decode_crashes: float
    stalls: float
    cuts: float
    router_cuts: float
    longest_down_s: float
    # policies
    resend_s: float
    hold_deadline_s: float
    handoff_timeout_s: float
    on_disconnect: Literal["abort", "after-handoff"]
    retries: int
    breaker_failures: int
    room_bits: int
    # clients
    tenants: int
    requests_per_s: float
    bursts: bool
    longest_prompt_tokens: int
    longest_answer_tokens: int
    shared_prefixes: int
    leaving: float
    timeouts: float
    oversized: float
    per_minute: int
    repeats: float = 0.0
    patience_s: float = 1.0

    def rates(self) -> dict[int, float]:
        """By the kinds of `fates`."""
        return {
            fates.LOSE: self.losses,
            fates.COPY: self.copies,
            fates.LATE: self.delays,
            fates.STRAY: self.strays,
            fates.EARLY_ACK: self.strays,
            fates.FOREIGN: self.strays,
            fates.TORN: self.writes_torn,
            fates.HELD_UP: self.frames_held_up,
            fates.QUIESCED: self.writes_failed,
            fates.UNKNOWN: self.writes_unknown,
            fates.UNKNOWN_LANDS: self.writes_unknown_landing,
            fates.SLOW: self.writes_slow,
        }


class Way(msgspec.Struct, frozen=True):
    """How pages come to decode, whatever the seed says; "" leaves it to the seed. What is pulled lands directly."""

    transfer: Literal["", "push", "pull"] = ""
    landing: Literal["", "direct", "staged"] = ""

    def taken_by(self, p: Parameters) -> Parameters:
        transfer = self.transfer or p.transfer
        landing = "direct" if transfer == "pull" else self.landing or p.landing
        return msgspec.structs.replace(p, transfer=transfer, landing=landing)

    def words(self) -> list[str]:
        """As the command line says it."""
        return [f"--{name} {said}" for name in self.__struct_fields__ if (said := getattr(self, name))]


ANY = Way()


def draw(seed: int) -> Parameters:
    """Everything from one seed. Small clusters and quiet faults are as likely as large and bad ones."""
    rng = random.Random(f"quiesce swarm {seed}")
    ranks = rng.choice([(1, 1)] * 6 + [(2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (8, 1), (1, 8), (4, 2)])
    page_size = rng.choice([4, 8, 16, 32])
    longest = rng.choice([8, 32, 128, 256] if ranks == (1, 1) else [8, 16, 32]) * page_size
    parts: dict[str, Any] = {}
    parts |= _cluster(rng, ranks, page_size, longest) | _time(rng) | _messages(rng) | _processes(rng)
    parts |= _policies(rng) | _clients(rng, page_size, longest) | _strangeness(seed)
    parts |= _way(seed, longest // page_size)
    return Parameters(seed=seed, **parts)


def _cluster(rng: random.Random, ranks: tuple[int, int], page_size: int, longest: int) -> dict[str, Any]:
    large = ranks == (1, 1)
    pages = longest // page_size
    return {
        "prefills": rng.choice([1, 1, 2, 2, 3, 4, 6, 8] if large else [1, 1, 2, 3]),
        "decodes": rng.choice([1, 1, 2, 2, 3, 4, 6, 8] if large else [1, 1, 2]),
        "prefill_ranks": ranks[0],
        "decode_ranks": ranks[1],
        "page_size": page_size,
        "prefill_pages": rng.choice([2, 3, 6]) * pages,
        "decode_pages": rng.choice([2, 3, 4, 8]) * pages,
        "context_tokens": rng.choice([1, 2]) * longest + longest // 2,
        "chunk_tokens": rng.choice([1, 4, 16, 32]) * page_size + rng.choice([0, 0, page_size // 2]),
        "batch_pages": rng.choice([0, 0, 1, 2]),
        "window": rng.choice([1, 2, 2, 4]),
        "max_running": rng.choice([2, 4, 8, 16]),
        "max_queue": rng.choice([2, 8, 32]),
        "headroom_tokens": rng.choice([1, page_size, 8 * page_size]),
        "prefix_cache": rng.random() < 0.6,
        "audited": pages <= 32 and rng.random() < 0.25,
    }


def _time(rng: random.Random) -> dict[str, Any]:
    return {
        "chunk_s": rng.choice([0.002, 0.02, 0.1]),
        "step_s": rng.choice([0.005, 0.02, 0.05]),
        "page_s": rng.choice([0.0002, 0.002, 0.02]),
        "message_s": rng.choice([0.0002, 0.002, 0.02]),
        "pace_spread": rng.choice([0.0, 0.0, 0.1, 0.5]),
    }


def _messages(rng: random.Random) -> dict[str, Any]:
    bad = rng.choice([0.0, 0.3, 1.0, 1.0, 3.0])
    return {
        "ordered": rng.random() < 0.4,
        "losses": _some(rng, bad * 0.02),
        "copies": _some(rng, bad * 0.04),
        "delays": _some(rng, bad * 0.04),
        "longest_delay_s": rng.choice([0.5, 5.0, 40.0]),
        "writes_failed": _some(rng, bad * 0.01),
        "writes_unknown": _some(rng, bad * 0.003),
        "writes_unknown_landing": _some(rng, bad * 0.003),
        "writes_slow": _some(rng, bad * 0.05),
        "slowest_write_s": rng.choice([1.0, 10.0, 60.0]),
        "transport": rng.choice(["stores", "network"]),
        "fence": rng.random() < 0.5,
        "fence_policy": rng.choice(["quarantine", "quarantine", "fence"]),
        "quarantine_budget": rng.choice([0.1, 0.25]),
    }


def _processes(rng: random.Random) -> dict[str, Any]:
    return {
        "prefill_crashes": _some(rng, rng.choice([10.0, 60.0, 200.0])),
        "decode_crashes": _some(rng, rng.choice([10.0, 60.0, 200.0])),
        "stalls": _some(rng, rng.choice([20.0, 200.0])),
        "cuts": _some(rng, rng.choice([20.0, 200.0])),
        "router_cuts": _some(rng, 20.0),
        "longest_down_s": rng.choice([0.5, 3.0, 20.0]),
    }


def _policies(rng: random.Random) -> dict[str, Any]:
    return {
        "resend_s": rng.choice([0.1, 0.5, 2.0]),
        "hold_deadline_s": rng.choice([0.3, 2.0, 10.0, 30.0]),
        "handoff_timeout_s": rng.choice([2.0, 10.0, 60.0]),
        "on_disconnect": rng.choice(["abort", "abort", "after-handoff"]),
        "retries": rng.choice([0, 1, 2]),
        "breaker_failures": rng.choice([2, 3, 5]),
        "room_bits": rng.choice([2, 8, 63, 63]),
    }


def _clients(rng: random.Random, page_size: int, longest: int) -> dict[str, Any]:
    return {
        "tenants": rng.choice([1, 2, 3, 5]),
        "requests_per_s": rng.choice([0.5, 2.0, 5.0, 15.0]),
        "bursts": rng.random() < 0.4,
        "longest_prompt_tokens": longest,
        "longest_answer_tokens": rng.choice([4, 64, 256, 256]),
        "shared_prefixes": rng.choice([0, 2, 6]),
        "leaving": rng.choice([0.0, 0.1, 0.4]),
        "timeouts": rng.choice([0.0, 0.1, 0.3]),
        "oversized": rng.choice([0.0, 0.02]),
        "per_minute": rng.choice([0, 0, 60]),
    }


def _strangeness(seed: int) -> dict[str, Any]:
    """By chance of its own, so that what else a seed decides stays what it was."""
    rng = random.Random(f"quiesce swarm {seed} strays")
    return {
        "strays": rng.choice([0.0, 0.005, 0.02, 0.05]),
        "writes_torn": rng.choice([0.0, 0.0, 0.003, 0.01]),
        "frames_held_up": rng.choice([0.0, 0.0, 0.1, 0.4]),
        "repeats": rng.choice([0.0, 0.0, 0.1, 0.4]),
        "patience_s": rng.choice([1.0, 1.0, 0.3, 0.05]),
    }


def _way(seed: int, pages: int) -> dict[str, Any]:
    """How pages come to decode. By chance of its own, too: so requests and faults are the same either way."""
    rng = random.Random(f"quiesce swarm {seed} way")
    transfer, landing = rng.choice(["push", "push", "push", "pull", "pull"]), rng.choice(["direct", "staged"])
    return {
        "transfer": transfer,
        "landing": "direct" if transfer == "pull" else landing,
        "landing_pages": rng.choice([1, 1, 2, 4]) * pages,
    }


def _some(rng: random.Random, most: float) -> float:
    """Nothing as often as now and then."""
    return rng.choice([0.0, most / 4, most, most])
