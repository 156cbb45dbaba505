"""Certificates that end: said beforehand in the log, and a number that follows the files."""

from __future__ import annotations

import asyncio
import datetime
import logging
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from quiesce.control.security import load_security
from quiesce.telemetry.expiry import Expiry
from quiesce.telemetry.metrics import Telemetry
from quiesce.trust.certificates import Leaf, make_certificates
from quiesce.trust.contexts import Contexts, Tls, load_tls
from quiesce.trust.lifetimes import DAY_S, LEAST_S, Lifetime, lifetimes_of, next_look_s

from .trial import HERE, directory

MEND = "Move a renewed one over it; no restart is needed"


def made(place: Path, days: int, ca_days: int = 400) -> tuple[str, str, str]:
    """The three files of a certificate that lasts so long; `place` may hold an earlier one."""
    for old in place.glob("decode-0.*"):
        old.unlink()
    if not (place / "ca.pem").exists():
        make_certificates(place, [], ca_days)
    make_certificates(place, [Leaf("decode-0", "decode/decode-0", HERE)], days)
    return f"{place}/decode-0.pem", f"{place}/decode-0.key", f"{place}/ca.pem"


def shown(telemetry: Telemetry) -> dict[str, float]:
    """Days that are left, by file."""
    found = re.findall(
        r'^quiesce_certificate_expires_seconds\{file="(\w+)".*\} (\S+)$', telemetry.render(), re.MULTILINE
    )
    return {file: float(left_s) / DAY_S for file, left_s in found}


@pytest.mark.parametrize("days", [1, 800, 20_000])
def test_dates_are_those_that_a_library_reads(tmp_path: Path, days: int) -> None:
    """20,000 days from now, years have four digits."""
    cert, _, ca = made(tmp_path, days)
    for read, file in zip(lifetimes_of(cert, ca), (cert, ca), strict=True):
        known = x509.load_pem_x509_certificate(Path(file).read_bytes())
        assert (read.begins_s, read.ends_s) == (
            known.not_valid_before_utc.timestamp(),
            known.not_valid_after_utc.timestamp(),
        )


def test_of_several_in_a_file_the_one_that_ends_first_counts(tmp_path: Path) -> None:
    (tmp_path / "long").mkdir()
    (tmp_path / "short").mkdir()
    both = [Path(made(tmp_path / which, 1, days)[2]) for which, days in (("long", 400), ("short", 40))]
    cas = "".join(each.read_text() for each in both)
    both[0].write_text(f"some words before\n{cas}")
    _, ca = lifetimes_of(f"{tmp_path}/long/decode-0.pem", str(both[0]))
    assert ca == Lifetime("tls_ca", str(both[0]), *_dates(both[1]))


def _dates(file: Path) -> tuple[float, float]:
    known = x509.load_pem_x509_certificate(file.read_bytes())
    return known.not_valid_before_utc.timestamp(), known.not_valid_after_utc.timestamp()


@pytest.mark.parametrize("content", ["", "garbage", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "it.pem").write_text(content)
    assert lifetimes_of(f"{tmp_path}/it.pem", f"{tmp_path}/none.pem") == ()


@pytest.mark.parametrize(
    ("life_days", "left_days", "said"),
    [
        (365, 31, ""),
        (365, 29, "--tls-ca ca.pem expires on 1971-01-01 00:00 UTC, in 29.0 days: then every new connection fails."),
        (30, 11, ""),
        (30, 9, "--tls-ca ca.pem expires on 1970-01-31 00:00 UTC, in 9.0 days: then every new connection fails."),
        (30, -1, "--tls-ca ca.pem expired on 1970-01-31 00:00 UTC: every new connection fails."),
    ],
)
def test_it_is_said_a_month_before_or_when_a_third_of_its_life_is_left(
    life_days: int, left_days: int, said: str
) -> None:
    warning = Lifetime("tls_ca", "ca.pem", 0, life_days * DAY_S).warning((life_days - left_days) * DAY_S)
    assert warning.removesuffix(f" {MEND}") == said


class Clock:
    """Of the day, and of the timers that are set: `tick` goes on to when the last one set is due."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self._set: tuple[float, Callable[[Tls], None], Tls] | None = None

    def __call__(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, look: Callable[[Tls], None], tls: Tls) -> asyncio.TimerHandle:
        self._set = delay_s, look, tls
        return asyncio.TimerHandle(0.0, look, (tls,), asyncio.get_running_loop())

    def tick(self) -> float:
        """How long that was."""
        assert self._set is not None
        delay_s, look, tls = self._set
        self.now_s += delay_s
        look(tls)
        return delay_s


@pytest.mark.parametrize(
    ("life_s", "looks"),
    [
        (
            69.0,
            [
                (46.0, "expires on 1970-01-01 00:01 UTC, in 23 s: then"),
                (23.0, "expired on 1970-01-01 00:01 UTC:"),
                (DAY_S, "expired on 1970-01-01 00:01 UTC:"),
            ],
        ),
        (
            2.25 * DAY_S,
            [
                (DAY_S, ""),
                (0.5 * DAY_S, "expires on 1970-01-03 06:00 UTC, in 18.0 hours: then"),
                (0.75 * DAY_S, "expired on 1970-01-03 06:00 UTC:"),
            ],
        ),
        (
            60 * DAY_S,
            [
                *[(DAY_S, "")] * 39,
                *[(DAY_S, f"expires on 1970-03-02 00:00 UTC, in {left}.0 days: then") for left in range(20, 0, -1)],
                (DAY_S, "expired on 1970-03-02 00:00 UTC:"),
            ],
        ),
    ],
)
async def test_the_log_says_it_each_day_when_it_is_due_and_at_the_end(
    life_s: float, looks: list[tuple[float, str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, context = Clock(0.0), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = Contexts(context, context, (Lifetime("tls_cert", "c.pem", 0.0, life_s),))
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", clock.call_later)
    Expiry(tls, Telemetry("decode", "decode-0"), clock)
    for took_s, said in looks:
        assert clock.tick() == took_s
        told = [record.getMessage() for record in caplog.records]
        assert told == ([f"--tls-cert c.pem {said} every new connection fails. {MEND}"] if said else [])
        caplog.clear()


def test_a_clock_that_is_set_or_comes_early_makes_no_looks_without_a_pause() -> None:
    """A timer may be a little early by the clock of the day."""
    it = Lifetime("tls_cert", "c.pem", 0.0, 69.0)
    assert [next_look_s((it,), now_s) for now_s in (46.0 - 1e-9, 69.0 - 1e-9, 69.0, -1e9)] == [
        LEAST_S, LEAST_S, DAY_S, DAY_S,
    ]  # fmt: skip


async def test_the_number_follows_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log has a word on new files that do not last either, once for the process."""
    telemetry, files = Telemetry("decode", "decode-0"), made(tmp_path, 365)
    tls, others = load_tls(*files), load_tls(*files)
    watch = Expiry(tls, telemetry)
    assert {file: round(days) for file, days in shown(telemetry).items()} == {"tls_cert": 365, "tls_ca": 400}
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]
    monkeypatch.setattr("quiesce.trust.certificates._BACKDATED", datetime.timedelta(days=300))
    made(tmp_path, 10)
    assert round(shown(telemetry)["tls_cert"]) == 10
    assert others.accepting
    watch.close()
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told.startswith("certificates have changed: new connections use ")
    assert f"; --tls-cert {tmp_path}/decode-0.pem expires on " in told


async def test_who_has_no_certificates_shows_no_number(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry("router", "router")
    Expiry(load_security(None, None, None).tls, telemetry).close()
    assert shown(telemetry) == {}
    assert not caplog.records


def test_the_trial_certificates_are_read() -> None:
    assert [each.which for each in lifetimes_of(f"{directory('ours')}/router.pem", f"{directory('ours')}/ca.pem")] == [
        "tls_cert",
        "tls_ca",
    ]
