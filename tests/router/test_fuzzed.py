"""schemathesis reads our own /openapi.json and asks a whole server all it can think of."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
import pytest

from quiesce.lab.cluster import Cluster
from quiesce.protocol.dispatch import WorkerSnapshot

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PROGRAM = Path(sys.executable).with_name("schemathesis")
BUDGET_S = 20
FLAGS = ("--model", "tiny", "--context-length", "256")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
"""Not that all that matches is accepted: a token id may be none of the model's, a prompt too long."""


async def fuzz(url: str, directory: Path) -> tuple[int, str]:
    """Its exit code and what it found. No file is left outside of `directory`."""
    options = ("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing", "--max-time", str(BUDGET_S))
    reproducible = ("--seed", "1", "--generation-deterministic", "--no-color")
    process = await asyncio.create_subprocess_exec(
        *(PROGRAM, "run", f"{url}/openapi.json", *options, *reproducible, "--continue-on-failure"),
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode(errors="replace")


def is_untouched(view: WorkerSnapshot) -> bool:
    return view.pages["free"] + view.pages["cached"] == sum(view.pages.values())


async def test_nothing_that_can_be_asked_is_a_server_error(tmp_path: Path) -> None:
    """And what is answered has the shape that was said, and what is not allowed is refused."""
    async with Cluster(*FLAGS) as cluster:
        code, output = await fuzz(cluster.url, tmp_path)
        assert code == 0, output[-8000:]
        for worker in ("prefill-0", "decode-0"):
            await cluster.until(worker, is_untouched)
        async with httpx.AsyncClient(base_url=cluster.url, trust_env=False) as client:
            assert (await client.get("/readiness")).status_code == 200
