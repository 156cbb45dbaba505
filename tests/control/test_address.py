from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.control.address import Address, TcpAddress, is_wildcard, parse_address, place_of, show_address
from quiesce.errors import ConfigurationError

KNOWN: dict[str, Address] = {
    "unix:/run/q/a.sock": Path("/run/q/a.sock"),
    "unix:/" + "x" * 106: Path("/" + "x" * 106),
    "tcp://10.0.0.1:9000": TcpAddress("10.0.0.1", 9000),
    "tcp://localhost:0": TcpAddress("localhost", 0),
    "tcp://prefill-0.quiesce.svc:65535": TcpAddress("prefill-0.quiesce.svc", 65535),
    "tcp://[::1]:1": TcpAddress("::1", 1),
}


@pytest.mark.parametrize("text", KNOWN)
def test_an_address_is_read_and_shown(text: str) -> None:
    assert parse_address(text) == KNOWN[text]
    assert show_address(KNOWN[text]) == text


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
        ("tcp://", "HOST:PORT"),
        ("tcp://host", "HOST:PORT"),
        ("tcp://:80", "HOST:PORT"),
        ("tcp://::1:80", "in brackets"),
        ("tcp://[10.0.0.1]:80", "in brackets"),
        ("tcp://[::1:80", "in brackets"),
        ("tcp://a b:80", "HOST:PORT"),
        ("tcp://user@host:80", "HOST:PORT"),
        ("tcp://" + "a." * 127 + "a:80", "HOST:PORT"),
        ("tcp://" + "a" * 64 + ".b:80", "HOST:PORT"),
        ("tcp://host.:80", "HOST:PORT"),
        ("tcp://127.1:80", "all four numbers"),
        ("tcp://2130706433:80", "all four numbers"),
        ("tcp://127.0.0.0x1:80", "all four numbers"),
        ("tcp://127.0.0.01:80", "all four numbers"),
        ("tcp://1.2.3.4.5:80", "all four numbers"),
        ("tcp://[fe80::1%a b]:80", "in brackets"),
        ("tcp://host:", "no port"),
        ("tcp://host:-1", "no port"),
        ("tcp://host:65536", "no port"),
        ("tcp://host:" + "9" * 9999, "no port"),
        ("tcp://host:٣", "no port"),
    ],
)
def test_other_addresses_are_configuration_errors(address: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_address(address)


SPELLED: dict[str, tuple[str, ...]] = {
    "tcp://prefill-0.example.org:9001": ("tcp://Prefill-0.EXAMPLE.org:9001", "tcp://prefill-0.example.org:09001"),
    "tcp://[2001:db8::1]:1": ("tcp://[2001:DB8:0:0::0001]:1",),
    "tcp://10.0.0.1:1": ("tcp://[::ffff:10.0.0.1]:1", "tcp://[::ffff:0a00:1]:1"),
    "unix:/run/a.sock": ("unix:///run/a.sock", "unix:/run//a.sock", "unix:/run/./a.sock"),
}


@pytest.mark.parametrize("written", SPELLED)
def test_of_all_spellings_of_an_address_there_is_one(written: str) -> None:
    for other in SPELLED[written]:
        assert show_address(parse_address(other)) == written


def test_what_is_one_place_is_seen_without_asking_anybody() -> None:
    same = [("tcp://localhost:1", "tcp://127.0.0.1:1"), ("unix:/run/b/../a.sock", "unix:/run/a.sock")]
    other = [("tcp://localhost:1", "tcp://127.0.0.1:2"), ("tcp://[::1]:1", "tcp://127.0.0.1:1")]
    for pairs, are_one in ((same, True), (other, False)):
        for one, two in pairs:
            assert (place_of(parse_address(one)) == place_of(parse_address(two))) is are_one


def test_which_hosts_are_only_this_machine() -> None:
    local = {"localhost": True, "127.0.0.2": True, "::1": True, "::": False, "10.0.0.1": False, "host": False}
    assert {host: TcpAddress(host, 1).is_loopback for host in local} == local
    assert [host for host in local if is_wildcard(host)] == ["::"]
