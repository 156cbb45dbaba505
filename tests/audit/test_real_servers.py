"""The audit before our own server: it finds what is broken on purpose, and nothing as it is shipped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quiesce.audit.endpoint import Keys
from quiesce.audit.options import Options
from quiesce.audit.report import Report
from quiesce.audit.session import audit
from quiesce.audit.text_report import as_text
from quiesce.audit.verdict import Status
from quiesce.cli.main import main
from quiesce.lab.cluster import PRODUCT, Cluster

from .late_writes import land_late

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = ("--model", "tiny", "--deterministic", "--context-length", "2048", "--max-prefill-tokens", "64")
LEAKY = ("--prefix-cache", "off", "--hold-deadline-s", "0.02", "--unsafe-release-on-timeout")
AUDITS = 4
OPTIONS = Options(
    seed=11,
    victims=8,
    allow_aborts=True,
    bit_exact=True,
    answer_tokens=24,
    donor_tokens=300,
    victim_tokens=120,
    pause_s=0.1,
    tenant_probes=3,
)


def silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


def suspected(report: Report) -> set[str]:
    return {check.name for check in report.verdict.checks if check.status is Status.SUSPECTED}


def with_(**changed: Any) -> Options:
    return Options(**{name: getattr(OPTIONS, name) for name in OPTIONS.__struct_fields__} | changed)


@pytest.fixture
def tenants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, Keys]:
    """A file of two tenants, and a key of each."""
    file, keys = tmp_path / "tenants.toml", []
    for name in ("alice", "bob"):
        assert main(["keys", "new", "--tenant", name, "--file", str(file)]) == 0
        keys.append(capsys.readouterr().out.strip())
    return file, Keys(*keys)


async def test_the_server_as_shipped_passes(tenants: tuple[Path, Keys]) -> None:
    file, keys = tenants
    async with Cluster(*FLAGS, "--tenants", str(file), program=PRODUCT) as cluster:
        report = await audit(cluster.url, keys, with_(two_keys=True), silent)
    shown = as_text(report)
    assert report.verdict.exit_code == 0, shown
    passed = {check.name for check in report.verdict.checks if check.status is Status.PASSED}
    assert passed == {"markers", "divergence", "ends", "claims", "long", "tenants-cached"}, shown


async def test_late_writes_are_found() -> None:
    """Pages are given away when time is up, and no tag is looked at: the incident.

    Whether a late write meets a victim is chance, even with the laboratory's help: one that saw nothing is followed by
    another.
    """
    leaving = asyncio.Event()

    def note(stage: str, done: int, total: int) -> None:
        """Donors leave in some rounds only, and a write that is held makes all others wait."""
        (leaving.set if "(abort)" in stage else leaving.clear)()

    async with Cluster(*FLAGS, *LEAKY, environ={"QUIESCE_LAB": "blind"}) as cluster:
        landing = asyncio.create_task(land_late(cluster, leaving))
        for seed in range(OPTIONS.seed, OPTIONS.seed + AUDITS):
            report = await audit(cluster.url, Keys(), with_(seed=seed, victims=16, answer_tokens=48), note)
            assert {row.arm: row.diverged.hits for row in report.verdict.arms}["sequential"] == 0
            if "divergence" in suspected(report):
                break
        landing.cancel()
        await asyncio.gather(landing, return_exceptions=True)
    assert "divergence" in suspected(report), as_text(report)


async def test_a_stub_handoff_and_a_cache_without_salts_are_found(tenants: tuple[Path, Keys]) -> None:
    file, keys = tenants
    pools = ("--prefill-pool-tokens", "1024", "--allow-small-pool", "--decode-pool-tokens", "4096")
    broken = {"QUIESCE_LAB": "no_admission,stub_handoff,blind,unsalted"}
    async with Cluster(*FLAGS, *pools, "--tenants", str(file), environ=broken) as cluster:
        options = with_(two_keys=True, allow_aborts=False, pool_tokens=1024)
        report = await audit(cluster.url, keys, options, silent)
    assert suspected(report) == {"long", "tenants-cached"}, as_text(report)
    assert "1 of 3 prompts over a limit were answered." in as_text(report)
