"""Certificates that will not do: both sides say what is the matter, in words, and whose it is."""

from __future__ import annotations

import datetime
import shutil
import ssl
from pathlib import Path

import pytest

from quiesce.control.dialing import connect
from quiesce.control.security import Security, load_security
from quiesce.control.stream import FrameStream
from quiesce.errors import ConfigurationError, PeerUnusable
from quiesce.trust import certificates
from quiesce.trust.certificates import Leaf, make_certificates
from quiesce.trust.contexts import Contexts
from quiesce.trust.wording import in_words

from .connections import decode_note
from .trial import HERE, Door, directory, files, shows

OURS_IS_OVER = "the other side says that this process's certificate has expired: renew --tls-cert here; no restart is"
THEIRS_IS_OVER = (
    "the other side's certificate has expired, by this host's clock: renew it there "
    "[CERTIFICATE_VERIFY_FAILED: certificate has expired]"
)


def expired(place: Path, monkeypatch: pytest.MonkeyPatch) -> Security:
    """A certificate of our CA that was good until yesterday."""
    for file in ("ca.pem", "ca.key"):
        shutil.copy(directory("ours") / file, place / file)
    monkeypatch.setattr(certificates, "_BACKDATED", datetime.timedelta(days=2))
    make_certificates(place, [Leaf("old", "prefill/prefill-0", HERE)], days=-1)
    return load_security(f"{place}/old.pem", f"{place}/old.key", f"{place}/ca.pem")


async def told_to_the_guest(owner: Security, guest: Security) -> str:
    """What ends the connection of who dials: in the handshake, or, as the owner judges later, with what is read."""
    async with Door(owner).opened() as listener:
        try:
            stream = FrameStream(await connect(listener.address, security=guest), decode_note, "there")
        except PeerUnusable as error:
            return str(error)
        assert await stream.receive() is None
        stream.close()
        return stream.trouble


async def test_an_expired_certificate_of_who_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = await told_to_the_guest(expired(tmp_path, monkeypatch), shows("decode-0"))
    assert f"{THEIRS_IS_OVER}." in said
    (logged,) = complaints(caplog)
    assert f"a connection from 127.0.0.1 was refused: {OURS_IS_OVER}" in logged


async def test_an_expired_certificate_of_who_dials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guest = expired(tmp_path, monkeypatch)
    async with Door(shows("decode-0")).opened() as listener:
        for _ in range(3):  # it dials again, as workers do, and is told each time; the log is told once
            stream = FrameStream(await connect(listener.address, security=guest), decode_note, "there")
            assert await stream.receive() is None
            assert stream.trouble.startswith(OURS_IS_OVER)
            stream.close()
    (logged,) = complaints(caplog)
    assert logged.endswith(THEIRS_IS_OVER)


async def test_the_reason_of_a_refusal_arrives_although_the_guest_has_begun_to_speak(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its first frame is not read any more; unread, it would reset the connection before the reason is."""
    async with Door(shows("prefill-0")).opened() as listener:
        stranger = Security(Contexts(another_ca(), another_ca()))
        sock = await connect(listener.address, security=stranger)
        stream = FrameStream(sock, decode_note, "there", encode=lambda frame: frame)
        stream.send(b"x" * 100_000)
        assert await stream.receive() is None
        stream.close()
    assert stream.trouble.startswith("the other side does not know the CA that signed this process's certificate: ")
    (logged,) = complaints(caplog)
    assert "the other side's certificate is not signed by the CA of this process's --tls-ca: give both " in logged


def another_ca() -> ssl.SSLContext:
    """It trusts anybody, and shows what our CA has not signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    told = files("decode-0", "another CA")
    context.load_cert_chain(told["tls_cert"], told["tls_key"])
    return context


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.endswith("tcp_listener")]


def test_files_that_cannot_be_used_are_told_in_words(tmp_path: Path) -> None:
    ours, theirs = directory("ours"), directory("another CA")
    (tmp_path / "garbage.key").write_text("garbage")
    for key, why in (
        (theirs / "prefill-0.key", "the key is not that of the certificate"),
        (tmp_path / "garbage.key", "not PEM, empty, half written or damaged, or the key has a password"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            load_security(f"{ours}/prefill-0.pem", str(key), f"{ours}/ca.pem")


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIF"])
def test_a_ca_that_is_empty_or_half_written_is_told_in_words(tmp_path: Path, content: str) -> None:
    ours, ca = directory("ours"), tmp_path / "ca.pem"
    ca.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        load_security(f"{ours}/prefill-0.pem", f"{ours}/prefill-0.key", str(ca))
    assert f"--tls-ca {ca}: no certificate is in it: it is empty, half written or not PEM" in str(caught.value)
    assert "took effect. Write it whole beside, and rename it to this name" in str(caught.value)


@pytest.mark.parametrize("missing", ["tls-cert", "tls-key"])
@pytest.mark.parametrize("is_directory", [False, True])
def test_of_certificate_and_key_the_one_that_is_missing_is_named(
    tmp_path: Path, missing: str, is_directory: bool
) -> None:
    ours, gone = directory("ours"), tmp_path / "gone"
    if is_directory:
        gone.mkdir()
    files = {"tls-cert": f"{ours}/prefill-0.pem", "tls-key": f"{ours}/prefill-0.key"} | {missing: str(gone)}
    with pytest.raises(ConfigurationError) as caught:
        load_security(files["tls-cert"], files["tls-key"], f"{ours}/ca.pem")
    why = "Is a directory" if is_directory else "No such file or directory"
    assert str(caught.value).endswith(f"--{missing} {gone}: {why}")
    assert str(caught.value).count("--tls-") == 1


def test_what_nobody_foresaw_is_told_as_it_is() -> None:
    assert in_words(ConnectionResetError(104, "Connection reset by peer")) == "Connection reset by peer"
    assert in_words(ssl.SSLError(1, "[SSL: ODD] odd (_ssl.c:1)")) == "[SSL: ODD] odd (_ssl.c:1)"
