"""What whoever runs an audit decides."""

from __future__ import annotations

from typing import Literal

import msgspec

Api = Literal["chat", "completions"]

FEWEST_VICTIMS = 8


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Keys are not among them: they are given to the endpoint alone, and nothing here may reach a report.

    `victims` is for each arm. `rate_per_s` 0 is no limit. `context_tokens` and `pool_tokens` stand in for, or correct,
    what the endpoint says of itself.
    """

    seed: int
    model: str = ""
    api: Api = "chat"
    allow_aborts: bool = False
    bit_exact: bool = False
    two_keys: bool = False
    victims: int = 48
    answer_tokens: int = 48
    donor_tokens: int = 512
    victim_tokens: int = 160
    tenant_probes: int = 12
    concurrency: int = 8
    rate_per_s: float = 0.0
    budget_tokens: int = 1_000_000
    max_requests: int = 2_000
    timeout_s: float = 120.0
    pause_s: float = 1.0
    context_tokens: int | None = None
    pool_tokens: int | None = None
