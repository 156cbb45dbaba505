"""Contexts and pools: what is refused at start, and what the defaults are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from quiesce.errors import ConfigurationError
from quiesce.kv.layout import Layout
from quiesce.protocol.admission import Limits
from quiesce.worker.settings import WorkerSettings
from quiesce.worker.sizes import available_memory_bytes, decide_limits, default_pool

LAYOUT = Layout(layers=2, kv_heads=1, head_dim=16, page_size=16)
SETTINGS = WorkerSettings(role="prefill", name="prefill-0", listen="unix:/tmp/p.sock")


STAGED: dict[str, Any] = {"role": "decode", "landing": "staged", "pool_tokens": 65_536}


def limits(**changes: object) -> Limits:
    return decide_limits(msgspec.structs.replace(SETTINGS, **changes), 4096, LAYOUT)


def test_context_and_pool_as_asked() -> None:
    """A pool is counted in whole pages."""
    assert limits(context_length=1024, pool_tokens=2050) == Limits(1024, 2048)


def test_context_over_pool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not fit the KV pool of 2048 tokens"):
        limits(pool_tokens=2048)


def test_context_over_pool_is_allowed_when_said() -> None:
    assert limits(pool_tokens=2048, allow_small_pool=True) == Limits(4096, 2048)


def test_context_over_the_models_is_refused_with_every_problem() -> None:
    with pytest.raises(ConfigurationError) as raised:
        limits(context_length=8192, pool_tokens=16)
    assert len(raised.value.problems) == 2


def test_default_pool_is_no_larger_than_full_batches_could_use() -> None:
    decided = limits(max_running_requests=2, memory_share=0.9)
    assert decided.pool_tokens == 2 * 4096


def test_default_pool_is_a_share_of_free_memory_in_round_numbers() -> None:
    share = 4096 * LAYOUT.token_bytes * 3.7 / available_memory_bytes()
    decided = limits(memory_share=share, max_running_requests=4096)
    assert decided.pool_tokens == pytest.approx(4096 * 3.7, rel=0.2)
    assert decided.pool_tokens % 1024 == 0


def test_default_pool_says_what_decided_its_size() -> None:
    small = default_pool("some", 4096, 4096, 0.15, LAYOUT)
    assert small.why == "15 % of free memory" or small.tokens == 4096 * 4096
    assert default_pool("some", 4096, 2, 0.15, LAYOUT).why == "2 x context, less than 15 % of free memory"


def test_tiny_does_not_take_a_batch_of_its_endless_contexts() -> None:
    assert default_pool("tiny", 1024, 32, 0.9, LAYOUT).tokens == 4 * 1024


def test_the_number_that_was_typed_is_in_the_message() -> None:
    with pytest.raises(
        ConfigurationError, match=r"the KV pool of 2050 tokens \(2048 in whole pages of 16, 512\.0 KiB\)"
    ):
        limits(pool_tokens=2050)
    with pytest.raises(ConfigurationError, match=r"^--context-length 3000 does not fit"):
        limits(pool_tokens=2050, context_length=3000)


# ---------------------------------------------------------------- landing


def test_prompts_land_in_the_pool_unless_landing_is_staged() -> None:
    assert limits(pool_tokens=65_536).landing_tokens == 0
    assert limits(**STAGED | {"role": "prefill"}).landing_tokens == 0


def test_default_landing_is_a_quarter_of_the_pool_and_holds_a_context() -> None:
    assert limits(**STAGED).landing_tokens == 16_384
    assert limits(**STAGED | {"pool_tokens": 8192}).landing_tokens == 4096


def test_landing_is_counted_in_whole_pages() -> None:
    assert limits(**STAGED, landing_bytes=4100 * LAYOUT.token_bytes + 1).landing_tokens == 4096


def test_landing_that_does_not_hold_the_context_is_refused_with_what_would() -> None:
    with pytest.raises(ConfigurationError, match=r"256\.0 KiB \(1024 tokens\): give at least 1\.0 MiB") as raised:
        limits(**STAGED, landing_bytes=1024 * LAYOUT.token_bytes)
    assert "--allow-small-pool" in raised.value.problems[0]
    assert limits(**STAGED, landing_bytes=1024 * LAYOUT.token_bytes, allow_small_pool=True).landing_tokens == 1024


def test_landing_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="of free memory"):
        limits(**STAGED, landing_bytes=10**17, allow_small_pool=True)


def test_a_small_pool_is_one_problem_not_two() -> None:
    with pytest.raises(ConfigurationError) as raised:
        limits(**STAGED | {"pool_tokens": 2048})
    assert len(raised.value.problems) == 1


@pytest.mark.parametrize(
    ("said", "digest"),
    [
        ({}, "off"),
        ({"landing": "staged"}, "blake2b"),
        ({"payload_digest": "blake2b"}, "blake2b"),
        ({"payload_digest": "off"}, "off"),
    ],
)
def test_staged_landing_brings_its_digest(said: dict[str, Any], digest: str) -> None:
    told: dict[str, Any] = {"role": "prefill", "name": "p", "listen": "unix:/tmp/p.sock", **said}
    assert WorkerSettings(**told).digest == digest


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"landing": "staged", "payload_digest": "off"}, "nothing else proves"),
        ({"landing_bytes": 1 << 20}, "means nothing without --landing staged"),
        ({"landing": "staged", "transfer": "pull"}, "nobody but decode writes"),
    ],
)
def test_what_cannot_be_meant_together_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        WorkerSettings(**{"role": "decode", "name": "d", "listen": "unix:/tmp/d.sock", **said})
