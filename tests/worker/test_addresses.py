"""Addresses that cannot be are found before a model is loaded, all at once."""

from __future__ import annotations

import pytest

from quiesce.errors import ConfigurationError
from quiesce.worker.main import run

from .requests import settings


def test_addresses_are_checked_before_anything_is_loaded() -> None:
    told = settings("decode", listen="unix:/" + "x" * 200, peer=("prefill-0",), model="/nowhere")
    with pytest.raises(ConfigurationError) as wrong:
        run(told)
    listen, peer = wrong.value.problems
    assert "longer than 107 bytes" in listen
    assert peer == "--peer 'prefill-0' must be NAME=ADDRESS (unix: or tcp:), each name once"
