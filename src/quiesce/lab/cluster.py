"""A whole server in processes of its own, for tests and demonstrations."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from quiesce.cli.attachment import Attachment
from quiesce.cli.port import free_port
from quiesce.cli.probe import ready
from quiesce.errors import PeerUnusable
from quiesce.lab.fault_socket import FaultControl
from quiesce.protocol.dispatch import WorkerSnapshot

LAB = ("quiesce.lab.serve",)
PRODUCT = ("quiesce.cli.main", "serve")

START_S = 180.0
STOP_S = 30.0


class Cluster:
    """`async with Cluster("--model", "tiny", ...)`: started, ready, and stopped at the end. `log` is its stderr.

    It has no spare unless a flag says so.
    """

    def __init__(self, *flags: str, program: Sequence[str] = LAB, environ: Mapping[str, str] | None = None) -> None:
        self._flags = flags
        self._program = program
        self._environ = dict(environ or {})
        self._home = tempfile.TemporaryDirectory(prefix="q-", dir="/tmp")
        self.port = free_port("127.0.0.1", 0)
        self._process: asyncio.subprocess.Process | None = None
        self._faults: list[FaultControl] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def _log_path(self) -> Path:
        return Path(self._home.name) / "log"

    async def __aenter__(self) -> Cluster:
        with self._log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *self._program, "--port", str(self.port), *self._flags),
                stdout=log,
                stderr=log,
                env={**os.environ, "XDG_RUNTIME_DIR": self._home.name, "QUIESCE_SPARE": "off", **self._environ},
            )
        try:
            await self._until_ready()
        except BaseException:
            await self._stop()
            raise
        return self

    async def _until_ready(self) -> None:
        died = asyncio.create_task(self._wait())
        up = asyncio.create_task(ready("127.0.0.1", self.port))
        done, pending = await asyncio.wait({died, up}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if up not in done:
            raise PeerUnusable(f"the server did not get ready:\n{self.log[-4000:]}")

    async def _wait(self) -> None:
        if self._process is not None:
            await self._process.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.log[-6000:], file=sys.stderr)
        await self._stop()

    async def _stop(self) -> None:
        for control in self._faults:
            control.close()
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._home.cleanup()

    # ------------------------------------------------------------ looking in

    def worker_socket(self, name: str) -> Path:
        """The socket of a worker, for example `decode-0`."""
        return next(Path(self._home.name).glob(f"quiesce-*/{name}.sock"))

    async def faults(self, name: str) -> FaultControl:
        """Orders for the faults inside a worker, until the cluster stops."""
        control = await FaultControl.open(self.worker_socket(name))
        self._faults.append(control)
        return control

    def pid(self, name: str) -> int:
        """The process that is `router` or a worker now; 0 when there is none."""
        ours = f"{self._home.name}/quiesce-"
        for words in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                said = re.split(rb"[\0 ]", words.read_bytes())  # supervised ones show one line
                if any(word.startswith(ours.encode()) and word.endswith(f"/{name}.toml".encode()) for word in said):
                    return int(words.parent.name)
        return 0

    async def all_here(self, *names: str) -> None:
        """Wait until these workers are there, with the router and, decode workers, all prefill workers among them.

        A server is ready when one pair is.
        """
        prefills = {name for name in names if name.startswith("prefill")}
        async with asyncio.timeout(START_S):
            for name in names:
                while not await self._is_here(name, prefills if name.startswith("decode") else set()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def _is_here(self, name: str, prefills: set[str]) -> bool:
        try:
            attachment = await Attachment.open(self.worker_socket(name))
        except (PeerUnusable, StopIteration):
            return False
        try:
            return bool((await attachment.snapshot()).routers) and prefills <= set(attachment.peers or ())
        except PeerUnusable:
            return False
        finally:
            attachment.close()

    async def snapshot(self, name: str) -> WorkerSnapshot:
        """What `quiesce inspect` would show of a worker now."""
        attachment = await Attachment.open(self.worker_socket(name))
        try:
            return await attachment.snapshot()
        finally:
            attachment.close()

    async def until(self, name: str, holds: Callable[[WorkerSnapshot], bool], within_s: float = 30.0) -> WorkerSnapshot:
        """Wait until a worker's snapshot satisfies `holds`. Raises PeerUnusable when it does not in time."""
        try:
            async with asyncio.timeout(within_s):
                while not holds(snapshot := await self.snapshot(name)):  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(0.02)
                return snapshot
        except TimeoutError:
            raise PeerUnusable(f"{name} did not get there within {within_s:g} s: {await self.snapshot(name)}") from None
