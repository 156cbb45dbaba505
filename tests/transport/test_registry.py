"""Backends by name, and those that packages offer."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from msgspec.structs import replace

from quiesce.errors import ConfigurationError, MachineLacksError
from quiesce.kv.storage import Pool
from quiesce.transport import registry

from .pools import ANYBODY, LAYOUT, SLOTS


@pytest.mark.parametrize("name", ["shm", "tcp"])
def test_our_backends_are_what_they_say_they_are(name: str) -> None:
    backend = registry.backend(name)
    source = Pool.private(LAYOUT, 2)
    pool = Pool.shared(LAYOUT, 4, SLOTS) if backend.shared_pool else Pool.private(LAYOUT, 4, SLOTS)
    sender, receiver = backend.sender(source, 1, 5.0), backend.receiver(pool, "127.0.0.1", 0)
    assert backend.name == name
    assert sender.capabilities == receiver.capabilities == backend.capabilities
    assert backend.capabilities.drain_ack
    assert backend.capabilities.fence
    assert sender.open_target(*receiver.describe(ANYBODY)).pages == pool.pages
    sender.close()
    receiver.close()
    for each in (source, pool):
        each.close()


def test_names() -> None:
    assert registry.names() == ("shm", "tcp", "mooncake", "nixl", "mori")
    assert registry.backend("auto") is registry.backend("shm")
    with pytest.raises(ConfigurationError, match="no transport 'carrier-pigeon'; there are auto, shm, tcp, moon"):
        registry.backend("carrier-pigeon")


@pytest.mark.parametrize("name", registry.names())
def test_pull_is_a_capability_a_puller_and_a_lender_or_none_of_them(name: str) -> None:
    backend = registry.backend(name)
    assert {backend.puller is not None, backend.lender is not None} == {backend.capabilities.pull}


def offered(monkeypatch: pytest.MonkeyPatch, value: str, name: str) -> None:
    point = EntryPoint(name, value, registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.ENTRY_POINTS else [])


def test_a_package_offers_one(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "tests.transport.liars:NAMED", "pigeon")
    assert registry.names() == ("shm", "tcp", "mooncake", "nixl", "mori", "pigeon")
    assert registry.backend("pigeon").reach == "as far as it flies"


def test_one_that_names_nothing_verified_has_to_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it declares was seen by nobody, as far as anybody here knows."""
    offered(monkeypatch, "tests.transport.liars:NAMED", "pigeon")
    pigeon = registry.backend("pigeon")
    with pytest.raises(ConfigurationError, match=r"pigeon names no library in a version.*--trust-transport"):
        registry.require_trusted(pigeon, network=True, library=False)
    registry.require_trusted(pigeon, network=True, library=True)
    named = replace(pigeon, library="pytest", verified=registry.installed_version("pytest"))
    registry.require_trusted(named, network=True, library=False)


def test_nobody_takes_our_names(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "tests.transport.liars:NAMED", "tcp")
    assert registry.names() == ("shm", "tcp", "mooncake", "nixl", "mori")
    assert registry.backend("tcp").reach == "any host"


@pytest.mark.parametrize(
    "value",
    ["no.such.module:X", "json:loads", "tests.transport.liars:SHM", "tests.transport.liars:HALF"],
    ids=["no module", "no backend", "other name", "a capability without its factories"],
)
def test_what_a_package_offers_is_checked(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    offered(monkeypatch, value, "pigeon")
    with pytest.raises(ConfigurationError, match="pigeon"):
        registry.backend("pigeon")


def test_a_transport_that_asks_nobody_who_they_are_is_used_only_in_a_trusted_network() -> None:
    mooncake = replace(registry.backend("mooncake"), library="", missing=str)
    with pytest.raises(ConfigurationError, match="--trust-network"):
        registry.require_trusted(mooncake, network=False, library=False)
    registry.require_trusted(mooncake, network=True, library=False)
    registry.require_trusted(registry.backend("tcp"), network=False, library=False)


def test_mori_is_refused_with_the_reason() -> None:
    mori = registry.backend("mori")
    with pytest.raises(ConfigurationError, match=r"mori cannot run here: .*Python 3\.10 and ROCm only"):
        registry.require_trusted(mori, network=True, library=True)
    with pytest.raises(MachineLacksError, match=r"Python 3\.10 and ROCm only"):
        mori.sender(Pool.private(LAYOUT, 1), 1, 1.0)


def test_a_library_that_is_not_installed_is_told_of_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda module: None)
    with pytest.raises(ConfigurationError, match=r"nixl cannot run here: nixl_cu12 is not installed; pip install"):
        registry.require_trusted(registry.backend("nixl"), network=True, library=True)


def test_a_configuration_that_was_never_verified_has_to_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    nixl = replace(registry.backend("nixl"), library="", missing=str)
    registry.require_trusted(nixl, network=True, library=False)
    monkeypatch.setenv("UCX_TLS", "rc")
    with pytest.raises(ConfigurationError, match=r"never verified with UCX_TLS=rc.*--trust-transport"):
        registry.require_trusted(nixl, network=True, library=False)
    registry.require_trusted(nixl, network=True, library=True)


def test_a_library_in_a_version_that_was_never_verified_has_to_be_trusted() -> None:
    other = replace(registry.backend("tcp"), library="pytest", verified="0.1")
    with pytest.raises(ConfigurationError, match=r"verified with pytest 0\.1, not with .*--trust-transport"):
        registry.require_trusted(other, network=True, library=False)
    registry.require_trusted(other, network=True, library=True)


def test_a_library_that_another_distribution_brought_has_to_be_trusted() -> None:
    """Mooncake's wheel with CUDA has the same modules under another name: nobody has seen what it does."""
    other = replace(registry.backend("tcp"), library="no-such-distribution", verified="0.1")
    with pytest.raises(ConfigurationError, match=r"0\.1, not with what is here, which another.*--trust-transport"):
        registry.require_trusted(other, network=True, library=False)
    registry.require_trusted(other, network=True, library=True)
