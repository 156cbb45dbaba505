"""Rule 10: the doors' arithmetic, and the words a client reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.errors import RequestRejected
from quiesce.protocol.admission import Limits, admit_decode, admit_prefill

WIDE = Limits(context_length=8_192, pool_tokens=100_000)
SMALL_POOL = Limits(context_length=1_048_576, pool_tokens=681_280)


def test_prompt_that_fills_prefill_is_admitted() -> None:
    admit_prefill(8_192, WIDE)


def test_incident_is_rejected_by_prefill_with_its_numbers() -> None:
    with pytest.raises(RequestRejected) as caught:
        admit_prefill(700_000, SMALL_POOL)
    assert (caught.value.code, caught.value.status, caught.value.param) == ("context_length_exceeded", 400, "messages")
    assert all(number in caught.value.message for number in ("681280", "1048576", "700000"))


def test_explicit_max_tokens_is_kept_or_rejected_never_clipped() -> None:
    assert admit_decode(8_000, 192, WIDE) == 192
    with pytest.raises(RequestRejected) as caught:
        admit_decode(8_000, 1_000, WIDE)
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is 8192 tokens" in caught.value.message
    assert "you requested 9000 tokens (8000 in the prompt, 1000 in the completion)" in caught.value.message


def test_absent_max_tokens_is_clipped_to_what_fits() -> None:
    assert admit_decode(8_000, None, WIDE) == 192
    assert admit_decode(681_279, None, SMALL_POOL) == 1


def test_prompt_must_leave_room_for_one_token() -> None:
    with pytest.raises(RequestRejected, match="leaves no room"):
        admit_decode(8_192, None, WIDE)


def test_prompt_must_land_whole() -> None:
    """What it lands in bounds the prompt, not the answer; 0 is no bound."""
    landing = Limits(context_length=8_192, pool_tokens=100_000, landing_tokens=1_024)
    assert admit_decode(1_024, 7_168, landing) == 7_168
    with pytest.raises(RequestRejected, match="prompts of at most 1024 tokens") as caught:
        admit_decode(1_025, 1, landing)
    assert (caught.value.code, caught.value.status) == ("context_length_exceeded", 400)


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_max_tokens_below_one_is_invalid(max_tokens: int) -> None:
    with pytest.raises(RequestRejected) as caught:
        admit_decode(5, max_tokens, WIDE)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "max_tokens")


def test_empty_prompt_is_rejected_at_both_doors() -> None:
    with pytest.raises(RequestRejected, match="empty"):
        admit_prefill(0, WIDE)
    with pytest.raises(RequestRejected, match="empty"):
        admit_decode(0, 5, WIDE)


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 500), st.none() | st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_what_is_admitted_fits(prompt_tokens: int, max_tokens: int | None, context: int, pool: int) -> None:
    limits = Limits(context, pool)
    try:
        admitted = admit_decode(prompt_tokens, max_tokens, limits)
    except RequestRejected:
        assert prompt_tokens + (max_tokens or 1) > min(context, pool)
    else:
        assert admitted >= 1
        assert prompt_tokens + admitted <= min(context, pool)
        admit_prefill(prompt_tokens, limits)
