"""Prefill and decode where decode reads (`--transfer pull`), over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from .house import House
from .rig import alone, prompt_ids

BOTH = ("prefill-0", "decode-0")
PULL: dict[str, Any] = {"transport": "tcp", "transfer": "pull"}


@pytest.mark.parametrize("length", [1, 4, 14, 39])
async def test_an_answer_is_that_of_one_process(house: House, length: int) -> None:
    await house.prefill(**PULL)
    await house.decode(**PULL)
    ask = house.desk.ask(prompt_ids(length), *BOTH, max_tokens=12)
    assert await ask.end("decode-0") == "length"
    assert await ask.end("prefill-0") == "handed_off"
    assert ask.tokens == alone(ask.ids, 12)
    await house.empty()
