"""A CA and certificates that it signed, for a trial: keys on disk, valid for weeks. Production has a CA of its own."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidKey, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quiesce.errors import ConfigurationError
from quiesce.trust.grants import GRANT_SCHEME

CA_NAME = "ca"
_BACKDATED = datetime.timedelta(minutes=5)
"""Clocks of two hosts differ."""
_RENEWING = (
    "nothing was written. Remove what is to be made anew, or name another directory and copy {0}/ca.pem and {0}/ca.key "
    "into it first: without them it gets a new CA, which no process trusts that runs with this one"
)

Key = ec.EllipticCurvePrivateKey


class Leaf(msgspec.Struct, frozen=True):
    """A certificate to be: whose, what it may be (`router`, `prefill/prefill-0`), at which names and IP addresses."""

    name: str
    grant: str
    hosts: tuple[str, ...]


def make_certificates(directory: Path, leaves: Sequence[Leaf], days: int) -> list[Path]:
    """Write NAME.pem and NAME.key for each leaf, and the CA's if there is none. The files that were written.

    Raises ConfigurationError, and writes nothing, when a file is there already or the CA there cannot be used.
    """
    taken = [path for leaf in leaves for path in _files(directory, leaf.name) if path.exists()]
    if taken:
        told = [f"{path} exists and is not overwritten" for path in taken]
        raise ConfigurationError([*told, _RENEWING.format(directory)])
    certificate, key = _files(directory, CA_NAME)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = [path for path in (certificate, key) if path.exists()]
        authority = _read_authority(certificate, key) if there else _make_authority(days)
        made = [] if there else [(CA_NAME, *authority)]
        made += [(leaf.name, *_sign(leaf, authority, days)) for leaf in leaves]
        return [path for name, cert, its_key in made for path in _write(directory, name, cert, its_key)]
    except OSError as error:
        raise ConfigurationError([f"{error.filename or directory}: {error.strerror or error}"]) from error


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.pem", directory / f"{name}.key"


def _read_authority(certificate: Path, key: Path) -> tuple[x509.Certificate, Key]:
    try:
        cert = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError, InvalidKey, UnsupportedAlgorithm) as error:
        raise ConfigurationError([f"{certificate} and {key} are no CA that can be used: {error}"]) from error
    if not isinstance(private, Key) or cert.public_key() != private.public_key():
        raise ConfigurationError([f"{key} is not the key of {certificate}"])
    if cert.not_valid_after_utc <= datetime.datetime.now(datetime.UTC):
        ended = f"{certificate} has expired ({cert.not_valid_after_utc:%Y-%m-%d}), and with it all that it signs"
        raise ConfigurationError([f"{ended}; nothing was written. Make another CA, in a new directory"])
    return cert, private


def _make_authority(days: int) -> tuple[x509.Certificate, Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Quiesce trial CA")])
    usage = x509.KeyUsage(
        *(False, False, False, False, False),
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _begun(name, name, key, days).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
    return builder.sign(key, hashes.SHA256()), key


def _sign(leaf: Leaf, authority: tuple[x509.Certificate, Key], days: int) -> tuple[x509.Certificate, Key]:
    ca, ca_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, leaf.name[:64])])
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    known_as = [x509.UniformResourceIdentifier(f"{GRANT_SCHEME}{leaf.grant}"), *map(_host, leaf.hosts)]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = _begun(name, ca.subject, key, days).add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(both, critical=False).add_extension(issuer, critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(known_as), critical=False)
    return builder.sign(ca_key, hashes.SHA256()), key


def _begun(name: x509.Name, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _BACKDATED).not_valid_after(now + datetime.timedelta(days=days))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(directory: Path, name: str, certificate: x509.Certificate, key: Key) -> tuple[Path, Path]:
    public, private = _files(directory, name)
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    _write_new(private, secret, 0o600)
    _write_new(public, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return public, private


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Made with its mode, and only when nothing is there: not even a link."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
        file.write(content)
