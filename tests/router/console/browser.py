"""A headless Chromium, driven over a pipe by its DevTools protocol. Not a test."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)

_ON_FDS_3_AND_4 = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe", "--hide-scrollbars"),
)
_WAIT_S = 60.0


class Browser:
    """`async with Browser() as browser`: one page. `console` has what it complained about: scripts, blocked sources."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self.console: list[str] = []
        self._size = width, height
        self._home = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""

    async def __aenter__(self) -> Self:
        read_there, write_here = os.pipe()
        read_here, write_there = os.pipe()
        wrapper = (sys.executable, "-c", _ON_FDS_3_AND_4, str(read_there), str(write_there))
        self._process = await asyncio.create_subprocess_exec(
            *(*wrapper, CHROMIUM, *_FLAGS, f"--user-data-dir={self._home.name}"),
            pass_fds=(read_there, write_there),
            stderr=asyncio.subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        self._out = os.fdopen(write_here, "wb", buffering=0)
        self._in = asyncio.StreamReader(limit=64 << 20)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._in), os.fdopen(read_here, "rb", buffering=0)
        )
        self._reading = asyncio.create_task(self._read())
        await self._open_page()
        return self

    async def _open_page(self) -> None:
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.resize(*self._size)

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.wait()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._transport.close()
        self._out.close()
        self._home.cleanup()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        number = next(self._ids)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        answer = await asyncio.wait_for(self._answers[number], _WAIT_S)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def _read(self) -> None:
        while True:
            message = json.loads((await self._in.readuntil(b"\0"))[:-1])
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            elif message["method"] == "Runtime.exceptionThrown":
                self.console.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.console.append(message["params"]["entry"]["text"])

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def tell(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true, over navigations."""
        async with asyncio.timeout(_WAIT_S):
            while not await self._true(expression):  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.05)

    async def _true(self, expression: str) -> bool:
        try:
            return bool(await self.tell(expression))
        except AssertionError:
            return False  # the page is being replaced

    async def screenshot(self, path: Path) -> None:
        image = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(image["data"]))
