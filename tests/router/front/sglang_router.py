"""The published `sglang-router`, in a virtual environment of its own, as a process in front of our fronts."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from quiesce.cli.port import free_port

VERSION = "0.3.2"
HOME = Path(__file__).parents[3] / f".venv-sglang-router-{VERSION}"

# Without its dependencies: they are for its other load balancer and for the command that may start that one.
LAUNCH = """
import argparse, sys
from sglang_router.router import Router
from sglang_router.router_args import RouterArgs

parser = argparse.ArgumentParser()
RouterArgs.add_cli_args(parser, use_router_prefix=False)
args = RouterArgs.from_cli_args(parser.parse_args(sys.argv[1:]), use_router_prefix=False)
Router.from_args(args).start()
"""
NO_NETWORK = re.compile(
    r"NewConnectionError|name resolution|Name or service|unreachable|timed out|ConnectTimeout", re.I
)


def interpreter() -> Path:
    """A Python that has `sglang_router`; made once, whichever test process is first."""
    python = HOME / "bin" / "python"
    with HOME.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HOME / "installed").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", HOME], check=True)
            _install(python)
            (HOME / "installed").touch()
    return python


def _install(python: Path) -> None:
    """Skips only where nobody can be surprised by it: an index that cannot be reached, and not in CI."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    done = subprocess.run([*command, f"sglang-router=={VERSION}"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if NO_NETWORK.search(done.stderr) and not os.environ.get("CI"):
        pytest.skip(f"no package index can be reached for sglang-router=={VERSION}")
    pytest.fail(f"sglang-router=={VERSION} could not be installed:\n{done.stderr}")


class SglangRouter:
    """`async with SglangRouter(python, log, "--pd-disaggregation", ...)`: started, and `workers` are healthy."""

    def __init__(self, python: Path, log: Path, *flags: str, workers: int) -> None:
        self.port = free_port("127.0.0.1", 0)
        self._python, self._log, self._workers = python, log, workers
        listening = (
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--prometheus-port",
            str(free_port("127.0.0.1", 0)),
        )
        self._flags = (*listening, "--worker-startup-check-interval", "1", *flags)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> SglangRouter:
        # It looks for tokenizers on the hub, and does without; there is none at this address, at once.
        environ = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(str(self._python), "-c", LAUNCH, *self._flags), stdout=log, stderr=log, env=environ
            )
        try:
            await self._until_ready()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _until_ready(self) -> None:
        async with asyncio.timeout(90), httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            while not await self._is_ready(client):  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.1)

    async def _is_ready(self, client: httpx.AsyncClient) -> bool:
        if self._process is not None and self._process.returncode is not None:
            pytest.fail(f"sglang-router ended:\n{self._log.read_text(errors='replace')[-4000:]}")
        try:
            told = (await client.get("/readiness")).json()
        except (httpx.HTTPError, ValueError):
            return False
        return bool(told.get("healthy_workers") == self._workers)

    async def _stop(self) -> None:
        """It has nothing to keep, and its own way to stop waits for its clients."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
