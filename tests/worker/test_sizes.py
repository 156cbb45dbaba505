"""Contexts and pools: what is refused at start, and what the defaults are."""

from __future__ import annotations

import msgspec
import pytest

from quiesce.errors import ConfigurationError
from quiesce.kv.layout import Layout
from quiesce.protocol.admission import Limits
from quiesce.worker.settings import WorkerSettings
from quiesce.worker.sizes import available_memory_bytes, decide_limits, default_pool

LAYOUT = Layout(layers=2, kv_heads=1, head_dim=16, page_size=16)
SETTINGS = WorkerSettings(role="prefill", name="prefill-0", listen="unix:/tmp/p.sock")


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
