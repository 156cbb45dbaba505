"""Certificates that change on disk: connections that begin afterwards show and ask for the new ones."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from quiesce.control.connection import identity_of
from quiesce.control.security import Security, load_security
from quiesce.errors import PeerUnusable
from quiesce.trust.certificates import Leaf, make_certificates

from .trial import HERE, directory, files, joined, shows


def held(place: Path, name: str, which: str = "ours") -> Security:
    """What a process shows whose files are in `place`."""
    replace(place, name, which)
    told = [f"{place}/{file}" for file in (f"{name}.pem", f"{name}.key", "ca.pem")]
    return load_security(*told)


def replace(place: Path, name: str, which: str, files_too: tuple[str, ...] = ("pem", "key")) -> None:
    for file in (*(f"{name}.{end}" for end in files_too), "ca.pem"):
        shutil.copy(directory(which) / file, place / f"{file}.new")
        (place / f"{file}.new").replace(place / file)


async def key_seen(owner: Security, guest: Security) -> str:
    async with joined(owner, guest) as (_, owners):
        return identity_of(owners).key


async def test_another_ca_takes_the_place_of_the_first_on_both_sides(tmp_path: Path) -> None:
    """And is the only one then: what the earlier one signed comes in no more."""
    owner, guest = held(tmp_path, "prefill-0"), held(tmp_path, "decode-0")
    assert await key_seen(owner, guest)
    for name in ("prefill-0", "decode-0"):
        replace(tmp_path, name, "another CA")
    assert await key_seen(owner, guest)
    assert await key_seen(shows("prefill-0", "another CA"), guest)
    with pytest.raises(PeerUnusable):
        await key_seen(owner, shows("decode-0"))


async def test_files_that_cannot_be_used_change_nothing_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate whose key has not come yet; when it has, both are used."""
    owner = held(tmp_path, "prefill-0")
    replace(tmp_path, "prefill-0", "another CA", ("pem",))
    shutil.copy(directory("ours") / "ca.pem", tmp_path / "ca.pem")
    for _ in range(2):
        assert await key_seen(owner, shows("decode-0"))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("certificates have changed: cannot be used, those from before stay in use: ")
    assert f"--tls-key {tmp_path}/prefill-0.key: " in warnings[0]
    replace(tmp_path, "prefill-0", "another CA")
    assert await key_seen(owner, shows("decode-0", "another CA"))


async def test_a_renewed_certificate_is_the_same_owners(tmp_path: Path) -> None:
    """Its names say so; a new key does not make another process of a worker that lives on."""
    for file in ("ca.pem", "ca.key"):
        shutil.copy(directory("ours") / file, tmp_path / file)
    make_certificates(tmp_path, [Leaf("decode-0", "decode/decode-0", HERE)], days=1)
    renewed = load_security(f"{tmp_path}/decode-0.pem", f"{tmp_path}/decode-0.key", files("decode-0")["tls_ca"])
    owner = shows("prefill-0")
    assert await key_seen(owner, renewed) == await key_seen(owner, shows("decode-0"))
    assert await key_seen(owner, renewed) != await key_seen(owner, shows("decode-1"))
