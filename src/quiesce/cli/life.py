"""One process from its start to its end, started and reaped on the loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from quiesce.cli.relay import Relay

_LAST_WORDS_S = 1.0


class Life:
    """A running process. Reaping happens here alone: a signal never goes to an id that was given away."""

    def __init__(self, process: subprocess.Popen[bytes], relay: Relay | None) -> None:
        """Use `begin`."""
        self._process = process
        self._relay = relay

    @classmethod
    def begin(
        cls,
        argv: Sequence[str],
        parent_fd: int,
        environ: Mapping[str, str],
        hear: Callable[[str], None] | None = None,
        *,
        told: bool = False,
    ) -> Self:
        """Start `argv`. `hear` gets the lines of its stderr, else it writes to ours; `told`: it waits for `tell`.

        Raises OSError when the program cannot be run.
        """
        reading, writing = os.pipe() if hear else (None, None)
        try:
            # Its own session: Ctrl-C in the terminal is for the supervisor, who stops children in the right order.
            process = subprocess.Popen(
                argv,
                pass_fds=(parent_fd,),
                env=environ,
                start_new_session=True,
                stdin=subprocess.PIPE if told else None,
                stderr=writing,
                bufsize=0,
            )
        except OSError:
            if reading is not None:
                os.close(reading)
            raise
        finally:
            if writing is not None:
                os.close(writing)
        return cls(process, Relay(reading, hear) if reading is not None and hear else None)

    @property
    def pid(self) -> int | None:
        """None once it has ended."""
        return self._process.pid if self._process.poll() is None else None

    @property
    def stopped(self) -> bool:
        """Whether it lives, but somebody has stopped it (SIGSTOP): it would hear nothing."""
        if self.pid is None:
            return False
        try:  # WNOWAIT: nothing is reaped, and the next question has the same answer
            return os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # it has ended just now
            return False

    def tell(self, words: Sequence[str]) -> bool:
        """Say one line to a process that was begun `told`, once; whether it can still read."""
        pipe, self._process.stdin = self._process.stdin, None
        if pipe is None:
            return False
        try:
            with pipe:
                pipe.write(json.dumps(words).encode() + b"\n")
        except OSError:
            return False
        return self.pid is not None

    async def exited(self) -> int:
        """Wait for its end; its exit code (negative: the signal that ended it)."""
        if not hasattr(os, "pidfd_open"):
            return await asyncio.to_thread(self._process.wait)
        if self._process.poll() is None:
            await _readable(os.pidfd_open(self._process.pid))
        return self._process.wait()

    async def ended(self) -> int:
        """The same, after its last words were heard."""
        try:
            code = await self.exited()
            if self._relay is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WORDS_S):
                        await self._relay.ended.wait()
            return code
        finally:
            self._close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process lives."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it now, and wait for the kernel to say so."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._relay is not None:
            self._relay.close()
        if self._process.stdin is not None:
            self._process.stdin.close()


async def _readable(fd: int) -> None:
    """Wait until `fd`, which is closed then, can be read; a pidfd can when its process has ended."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(fd, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def describe_end(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
