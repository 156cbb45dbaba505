"""Addresses that cannot be are found before a model is loaded, all at once."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from quiesce.control.address import TcpAddress
from quiesce.control.security import Security
from quiesce.control.workers_file import NamedWorkers
from quiesce.errors import ConfigurationError
from quiesce.worker.greeting import transport_name
from quiesce.worker.main import run
from quiesce.worker.peers import peers_of
from quiesce.worker.reach import check_addresses, check_reach, way_of_pages, with_transport
from quiesce.worker.settings import Role
from tests.control.trial import files

from .requests import settings


def test_addresses_are_checked_before_anything_is_loaded() -> None:
    told = settings("decode", listen="unix:/" + "x" * 200, peer=("prefill-0",), model="/nowhere")
    with pytest.raises(ConfigurationError) as wrong:
        run(told)
    listen, peer = wrong.value.problems
    assert "longer than 107 bytes" in listen
    assert peer == "--peer 'prefill-0' must be NAME=ADDRESS (unix: or tcp:), each name once"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "a name has 1 to 256 characters, and this one has 0"),
        ("n" * 257, "a name has 1 to 256 characters, and this one has 257"),
        ("p\x1b[2J", "p\\x1b[2J is no name: printable characters without quotes and backslashes make one"),
        ("it's", "it's is no name: printable characters without quotes and backslashes make one"),
    ],
)
def test_a_name_that_no_router_would_register_is_refused_at_the_start(name: str, why: str) -> None:
    """Whether it registers or not, and for whoever names it, too."""
    with pytest.raises(ConfigurationError) as wrong:
        run(msgspec.structs.replace(settings("prefill", model="/nowhere"), name=name))
    assert wrong.value.problems == [f"--name: {why}"]
    with pytest.raises(ConfigurationError) as wrong:
        run(settings("decode", peer=(f"{name}=unix:/p.sock",), model="/nowhere"))
    assert wrong.value.problems == [f"--peer {f'{name}=unix:/p.sock'!r}: {why}"]


TRUSTED = {"insecure": True}
HOME = {"register": ("tcp://10.0.0.1:1",), **TRUSTED}
FAR = {"peer": ("prefill-0=tcp://10.0.0.2:1",), **TRUSTED}


@pytest.mark.parametrize(
    ("role", "told", "why"),
    [
        ("prefill", {"listen": "tcp://10.0.0.2:1"}, "control over TCP needs TLS"),
        ("decode", {"peer": ("prefill-0=tcp://127.0.0.1:1",)}, "control over TCP needs TLS"),
        ("prefill", {"listen": "tcp://10.0.0.2:1", "tls_cert": "/nowhere"}, "--tls-key is needed as well"),
        (
            "prefill",
            {"listen": "tcp://127.0.0.1:1", "transport": "shm", **TRUSTED},
            "shares memory, which ends at this",
        ),
        ("decode", {**FAR, "transport": "shm"}, "use --transport tcp"),
        ("decode", FAR, "--data-host 127.0.0.1 cannot be reached from 10.0.0.2"),
        ("decode", {**FAR, "data_host": "::"}, "nobody can dial that"),
        ("decode", {"peer": ("prefill-0=tcp://127.0.0.1:0",), **TRUSTED}, "port 0 is for listening"),
        ("prefill", {"transport": "tcp", "data_tls": "on"}, "--data-tls on needs --tls-cert, --tls-key and --tls-ca"),
        ("prefill", {**files("prefill-0"), "data_tls": "on"}, "pages of shm cannot be encrypted"),
        (
            "prefill",
            {"data_connections": 2},
            "--data-connections 2 needs --transport tcp: shm has one way to",
        ),
        ("decode", {"data_connections": 9, "transport": "nixl", "trust_network": True}, "nixl has one way to each"),
        ("decode", {"workers_srv": ("_q._tcp.example",), "dns_server": "127.0.0.1:1"}, "--workers-srv: control over"),
        ("decode", {"workers_srv": ("a b",), **TRUSTED}, "is no DNS name"),
        ("prefill", {"register": ("tcp://10.0.0.1:1",)}, "tcp://10.0.0.1:1: control over TCP needs TLS"),
        ("prefill", {"register": ("10.0.0.1:1",)}, "address '10.0.0.1:1' is not supported"),
        ("prefill", {"advertise": "tcp://h:1"}, "--advertise means nothing without --register"),
        ("decode", {"dns_server": "127.0.0.1:1"}, "--dns-server means nothing without --workers-srv"),
        ("prefill", {**HOME, "listen": "unix:/run/p.sock"}, "unix:/run/p.sock ends at this host"),
        ("prefill", {**HOME, "listen": "tcp://0.0.0.0:1"}, "say with --advertise where this worker is reached"),
        ("prefill", {**HOME, "listen": "tcp://0.0.0.0:1", "advertise": "tcp://h:0"}, "nobody can dial that"),
        ("decode", {**HOME, "listen": "tcp://h:1", "transport": "shm"}, "use --transport tcp"),
        ("decode", {**HOME, "listen": "tcp://h:1", "data_host": "::"}, "nobody can dial that"),
        (
            "decode",
            {"transfer": "pull", "transport": "shm"},
            "shm cannot --transfer pull: .* of ours these can: tcp",
        ),
    ],
)
def test_a_start_that_could_not_work_between_hosts_is_refused(role: Role, told: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        run(settings(role, model="/nowhere", **told))


def test_where_decode_reads_prefill_gives_the_address() -> None:
    told: dict[str, Any] = {"transport": "tcp", "transfer": "pull", **TRUSTED}
    check_reach(settings("decode", peer=FAR["peer"], **told))
    check_reach(settings("prefill", listen="tcp://10.0.0.2:1", **told))
    remedy = "127.0.0.1 cannot be reached from other hosts: give the address of this host that decode workers reach"
    for where in ({"listen": "tcp://0.0.0.0:1"}, {"listen": "tcp://10.0.0.2:1", "data_host": "127.0.0.1"}):
        with pytest.raises(ConfigurationError, match=remedy):
            check_reach(settings("prefill", **where, **told))


@pytest.mark.parametrize(
    ("told", "host"),
    [
        ({}, "127.0.0.1"),
        ({"data_host": "10.0.0.9"}, "10.0.0.9"),
        ({"listen": "tcp://10.0.0.1:1"}, "10.0.0.1"),
        ({"listen": "tcp://[FD00::0:1]:1", "advertise": "tcp://h:1"}, "fd00::1"),
        ({"listen": "tcp://10.0.0.1:1", "data_host": "10.9.0.1"}, "10.9.0.1"),
        ({"listen": "tcp://0.0.0.0:1"}, "127.0.0.1"),
        ({"listen": "tcp://0.0.0.0:1", "advertise": "tcp://10.0.0.1:1"}, "10.0.0.1"),
        ({"listen": "tcp://[::]:1", "advertise": "unix:/run/d.sock"}, "127.0.0.1"),
    ],
)
def test_pages_are_taken_where_control_is_unless_told_otherwise(told: dict[str, Any], host: str) -> None:
    """A wildcard is no address that prefill could dial."""
    decode = settings("decode", **told)
    assert decode.page_host == host


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"transport": "tcp"}, "tcp"),
        ({"transport": "tcp", **files("decode-0")}, "tcp+tls"),
        ({"transport": "tcp", **files("decode-0"), "data_tls": "on"}, "tcp+tls"),
        ({"transport": "tcp", **files("decode-0"), "data_tls": "off"}, "tcp"),
        ({"transport": "shm", **files("decode-0")}, "shm"),
    ],
)
def test_pages_are_encrypted_where_certificates_are_given(told: dict[str, Any], name: str) -> None:
    """Both halves hear it in HELLO: another name is another transport."""
    decode = settings("decode", data_host="10.0.0.1", **told)
    assert transport_name(decode) == name == way_of_pages(decode).name


@pytest.mark.parametrize(
    ("role", "told", "transport"),
    [
        ("prefill", {}, "shm"),
        ("prefill", {"listen": "tcp://10.0.0.2:1"}, "tcp"),
        ("prefill", {"listen": "tcp://10.0.0.2:1", "transport": "mooncake"}, "mooncake"),
        ("decode", {"listen": "tcp://10.0.0.1:1", "peer": ("prefill-0=unix:/run/p.sock",)}, "shm"),
        ("decode", {"peer": ("prefill-0=tcp://10.0.0.2:1",)}, "tcp"),
        ("decode", {"workers_srv": ("_quiesce._tcp.example",)}, "tcp"),
        ("decode", {"register": ("tcp://10.0.0.1:1",)}, "tcp"),
        ("decode", {"register": ("unix:/run/r.sock",)}, "shm"),
        ("decode", {"transfer": "pull"}, "tcp"),
    ],
)
def test_auto_takes_what_reaches_the_peers(role: Role, told: dict[str, Any], transport: str) -> None:
    assert with_transport(settings(role, **told)).transport == transport


def test_the_log_says_which_transport_auto_took_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        with_transport(settings("prefill"))
        with_transport(settings("prefill", listen="tcp://10.0.0.2:1"))
    here, there = caplog.messages
    assert here == "--transport auto takes shm: workers pair over Unix sockets, on one host"
    assert there.startswith("--transport auto takes tcp: workers pair over TCP, perhaps between hosts, and of what")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"transport": "shm"}, "shares memory, which ends at this host"),
        ({"transport": "tcp"}, "--data-host 127.0.0.1 cannot be reached from 10.0.0.2"),
        ({"transport": "tcp", "data_host": "10.0.0.1"}, ""),
        ({"transport": "tcp", "transfer": "pull"}, ""),
    ],
)
def test_a_peer_that_is_named_later_must_be_within_reach(told: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) if why else contextlib.nullcontext():
        check_addresses(settings("decode", **told), Security(insecure=True), [TcpAddress("10.0.0.2", 1)])


def test_a_file_may_not_name_who_a_flag_names() -> None:
    named = NamedWorkers(prefill={"prefill-0": TcpAddress("10.0.0.2", 1)})
    with pytest.raises(ConfigurationError, match="named by --peer and"):
        peers_of(settings("decode", workers_file="/nowhere", peer=("prefill-0=unix:/run/p.sock",)), named)
