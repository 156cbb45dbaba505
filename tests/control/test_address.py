from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.control.address import parse_address, show_address
from quiesce.errors import ConfigurationError


def test_a_unix_address_is_its_path_and_back() -> None:
    assert parse_address("unix:/run/q/a.sock") == Path("/run/q/a.sock")
    assert show_address(Path("/run/q/a.sock")) == "unix:/run/q/a.sock"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp:1.2.3.4:5", "not supported"),
        ("/run/a.sock", "not supported"),
        ("", "not supported"),
        ("unix:", "absolute"),
        ("unix:a.sock", "absolute"),
        ("unix:/run/", "absolute"),
        ("unix:/run/a\0b", "zero byte"),
        ("unix:/" + "ä" * 60, "longer than 107 bytes"),
    ],
)
def test_other_addresses_are_configuration_errors(address: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_address(address)


def test_the_longest_path_is_allowed() -> None:
    assert len(str(parse_address("unix:/" + "x" * 106))) == 107
