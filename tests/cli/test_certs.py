"""`quiesce certs`: a CA and certificates for a trial; keys are private and nothing is overwritten."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from quiesce.cli.main import main
from quiesce.control.security import load_security
from quiesce.trust.certificates import make_certificates

WORKERS = ("--prefill", "prefill-0=10.0.0.2,p.example", "--decode", "decode-0=10.0.0.1")


def names(path: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in alternatives}


def test_each_certificate_is_for_one_process(tmp_path: Path) -> None:
    made = tmp_path / "tls"
    assert main(["certs", str(made), "--router", "router", *WORKERS]) == 0
    assert names(made / "router.pem") == {"quiesce:router"}
    assert names(made / "prefill-0.pem") == {"quiesce:prefill/prefill-0", "10.0.0.2", "p.example"}
    assert names(made / "decode-0.pem") == {"quiesce:decode/decode-0", "10.0.0.1"}
    assert {path.stat().st_mode & 0o777 for path in made.glob("*.key")} == {0o600}
    for name in ("router", "prefill-0", "decode-0"):
        load_security(f"{made}/{name}.pem", f"{made}/{name}.key", f"{made}/ca.pem")


def test_without_options_it_is_for_this_machine(tmp_path: Path) -> None:
    assert main(["certs", str(tmp_path)]) == 0
    assert names(tmp_path / "decode-0.pem") == {"quiesce:decode/decode-0", "localhost", "127.0.0.1"}
    assert (tmp_path / "router.pem").exists()


def test_nothing_is_overwritten_and_a_ca_is_used_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", str(tmp_path), *WORKERS]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["certs", str(tmp_path), "--router", "router", *WORKERS]) == 2
    told = capsys.readouterr().err
    assert "prefill-0.pem exists and is not overwritten" in told
    assert f"copy {tmp_path}/ca.pem and {tmp_path}/ca.key into it first" in told
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert main(["certs", str(tmp_path), "--router", "router"]) == 0
    assert capsys.readouterr().out.split() == [f"{tmp_path}/router.pem", f"{tmp_path}/router.key"]
    assert (tmp_path / "ca.pem").read_bytes() == before["ca.pem"]


def test_a_new_directory_with_the_old_ca_renews(tmp_path: Path) -> None:
    """As docs/hosts.md has it; a directory without the CA's two files gets a CA of its own."""
    old, new, strange = tmp_path / "old", tmp_path / "new", tmp_path / "strange"
    assert main(["certs", str(old), *WORKERS]) == 0
    new.mkdir()
    for name in ("ca.pem", "ca.key"):
        shutil.copy(old / name, new)
    assert main(["certs", str(new), *WORKERS]) == main(["certs", str(strange), *WORKERS]) == 0
    ca = x509.load_pem_x509_certificate((old / "ca.pem").read_bytes())
    x509.load_pem_x509_certificate((new / "decode-0.pem").read_bytes()).verify_directly_issued_by(ca)
    with pytest.raises(InvalidSignature):
        x509.load_pem_x509_certificate((strange / "decode-0.pem").read_bytes()).verify_directly_issued_by(ca)


def test_a_ca_that_cannot_be_used_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", str(tmp_path), "--router", "a"]) == 0
    (tmp_path / "ca.key").write_bytes((tmp_path / "a.key").read_bytes())
    assert main(["certs", str(tmp_path), "--router", "b"]) == 2
    assert "is not the key of" in capsys.readouterr().err
    (tmp_path / "ca.key").write_bytes(b"")
    assert main(["certs", str(tmp_path), "--router", "b"]) == 2
    assert "are no CA that can be used" in capsys.readouterr().err
    (tmp_path / "ca.key").unlink()
    assert main(["certs", str(tmp_path), "--router", "b"]) == 2
    assert not (tmp_path / "b.pem").exists()


def test_a_ca_that_has_expired_signs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_certificates(tmp_path, [], days=0)
    assert main(["certs", str(tmp_path), *WORKERS]) == 2
    assert f"{tmp_path}/ca.pem has expired" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.key", "ca.pem"]


@pytest.mark.parametrize(
    "words",
    [
        ("--prefill", "prefill-0"),
        ("--prefill", "prefill-0="),
        ("--prefill", "../a=10.0.0.1"),
        ("--decode", "d=a b"),
        ("--router", "ca"),
        ("--router", "same", "--router", "same"),
    ],
)
def test_words_that_name_no_certificate_write_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert main(["certs", str(tmp_path / "tls"), *words]) == 2
    assert not (tmp_path / "tls").exists()
