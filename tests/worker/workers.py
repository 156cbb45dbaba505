"""Real worker processes of the laboratory, and a desk that is attached to them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quiesce.errors import PeerUnusable
from quiesce.lab.fault_socket import FaultControl

from .asking import BOTH, Desk, is_empty
from .gate import LONG_S
from .requests import SMALL
from .rig import prompt_ids

PROGRAM = ("quiesce.lab.worker",)


class Workers:
    """Starts, watches and ends worker processes. Close it at the end: nothing of it lives on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._faults: list[FaultControl] = []
        self.desk = Desk()

    async def pair(
        self,
        prefill: dict[str, Any] | None = None,
        decode: dict[str, Any] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """One prefill and one decode worker, joined."""
        told = {"program": program}
        await asyncio.gather(self.prefill(**(prefill or {}), **told), self.decode(**(decode or {}), **told))
        await self.desk.paired("decode-0", "prefill-0")

    async def prefill(self, **changes: Any) -> None:
        await self.start("prefill", **changes)

    async def decode(self, **changes: Any) -> None:
        await self.start("decode", peer=f"prefill-0=unix:{self.path('prefill-0')}", **changes)

    async def start(self, role: str, program: Sequence[str] = PROGRAM, **changes: Any) -> None:
        """Start a worker and attach to it; one of the same name must have ended."""
        name = f"{role}-0"
        told = {"name": name, "listen": f"unix:{self.path(name)}", **SMALL, "log_level": "info", **changes}
        with self.log_path(name).open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *program, role, *_flags(told), stdout=log, stderr=log
            )
        await self._attach(name)

    async def _attach(self, name: str) -> None:
        async with asyncio.timeout(60):
            while self._processes[name].returncode is None:
                try:
                    await self.desk.attach(name, self.path(name))
                except PeerUnusable:
                    await asyncio.sleep(0.05)  # it is loading; nothing can be awaited before it listens
                else:
                    return
        raise PeerUnusable(f"{name} ended at once:\n{self.log(name)}")

    def path(self, name: str) -> Path:
        return self._directory / f"{name}.sock"

    def log_path(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_path(name).read_text(encoding="utf-8", errors="replace")

    async def faults(self, name: str = "prefill-0") -> FaultControl:
        control = await FaultControl.open(self.path(name))
        self._faults.append(control)
        return control

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    async def ended(self, name: str) -> int:
        """Wait for the end of a process: its exit code, negative for a signal."""
        return await asyncio.wait_for(self._processes[name].wait(), LONG_S)

    async def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        assert await self.ended(name) == -signal.SIGKILL

    async def serves(self) -> None:
        """Both halves work, and give everything back."""
        await self.desk.ask(prompt_ids(30), *BOTH, max_tokens=6).answers(6)
        await self.empty()

    async def empty(self, *names: str) -> None:
        for name in names or BOTH:
            await self.desk.shows(name, is_empty)

    async def close(self) -> None:
        await self.desk.close()
        for control in self._faults:
            control.close()
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
        for name in self._processes:
            print(self.log(name)[-4000:])  # pytest shows it when the test failed


def _flags(told: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in told.items():
        flags.append(f"--{name.replace('_', '-')}")
        flags += [] if value is True else [str(value)]
    return flags
