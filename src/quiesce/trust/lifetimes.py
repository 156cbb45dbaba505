"""Until when certificates are good, and what to say of that beforehand: words and a number, no decision follows."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

import msgspec

DAY_S = 86_400.0
NOTICE_S = 30 * DAY_S
LEAST_S = 1.0
"""Between two looks, whatever the clock does."""
_UNITS = ((DAY_S, "days"), (3_600.0, "hours"), (60.0, "minutes"))
_PEM = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
_VALIDITY_AT = 3
"""In a certificate, its version left out: behind serial number, signature algorithm and issuer (RFC 5280, 4.1)."""


class Lifetime(msgspec.Struct, frozen=True):
    """Of the certificate that ends first of those in the `file` of a flag; `which` is `tls_cert` or `tls_ca`."""

    which: str
    file: str
    begins_s: float
    ends_s: float

    @property
    def due_s(self) -> float:
        """When a warning becomes due: 30 days before its end, or when a third of a life that is shorter is left."""
        return self.ends_s - min(NOTICE_S, (self.ends_s - self.begins_s) / 3)

    def warning(self, now_s: float) -> str:
        """What to say of its end, or "" while that is far away."""
        if now_s < self.due_s:
            return ""
        left_s = self.ends_s - now_s
        when = f"on {datetime.fromtimestamp(self.ends_s, UTC):%Y-%m-%d %H:%M} UTC"
        told = f"expires {when}, in {_span(left_s)}: then" if left_s > 0 else f"expired {when}:"
        flag = f"--{self.which.replace('_', '-')}"
        return f"{flag} {self.file} {told} every new connection fails. Move a renewed one over it; no restart is needed"


def lifetimes_of(cert: str, ca: str) -> tuple[Lifetime, ...]:
    """Of the files of --tls-cert and --tls-ca. What cannot be read has none: whether it can be used, others judge."""
    return tuple(found for which, file in (("tls_cert", cert), ("tls_ca", ca)) if (found := _lifetime(which, file)))


def _lifetime(which: str, file: str) -> Lifetime | None:
    try:
        found = [_validity(ssl.PEM_cert_to_DER_cert(each)) for each in _PEM.findall(Path(file).read_text("latin-1"))]
        begins_s, ends_s = min(found, key=lambda validity: validity[1])
    except (OSError, ValueError, IndexError):
        return None
    return Lifetime(which, file, begins_s, ends_s)


def _validity(der: bytes) -> tuple[float, float]:
    certificate = _elements(_elements(der)[0][1])
    fields = [element for element in _elements(certificate[0][1]) if element[0] != _VERSION]
    begins, ends = _elements(fields[_VALIDITY_AT][1])
    return _seconds(*begins), _seconds(*ends)


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element of DER. Python's ssl tells no dates of a certificate of one's own."""
    found, at = [], 0
    while at < len(data):
        tag, n_bytes, at = data[at], data[at + 1], at + 2
        if n_bytes & 0x80:
            n_length = n_bytes & 0x7F
            n_bytes, at = int.from_bytes(data[at : at + n_length], "big"), at + n_length
        found.append((tag, data[at : at + n_bytes]))
        at += n_bytes
    return found


def _seconds(tag: int, text: bytes) -> float:
    """Of an UTCTime, whose years have two digits and begin in 1950, or a GeneralizedTime."""
    told = text.decode("ascii")
    if tag == _UTC_TIME:
        told = f"{'20' if told < '50' else '19'}{told}"
    return datetime.strptime(told, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _span(left_s: float) -> str:
    return next((f"{left_s / unit_s:.1f} {unit}" for unit_s, unit in _UNITS if left_s >= unit_s), f"{left_s:.0f} s")


def warnings_of(lifetimes: tuple[Lifetime, ...], now_s: float) -> list[str]:
    """What to say now."""
    return [said for each in lifetimes if (said := each.warning(now_s))]


def next_look_s(lifetimes: tuple[Lifetime, ...], now_s: float) -> float:
    """In how many seconds there may be something to say: a day, or until one comes near its end or ends."""
    moments = (at_s for each in lifetimes for at_s in (each.due_s, each.ends_s))
    return max(LEAST_S, min([DAY_S, *(at_s - now_s for at_s in moments if at_s > now_s)]))
