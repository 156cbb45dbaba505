"""Whether a grammar can be followed: asked of a process of its own, before anything exists for the request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import OrderedDict

import msgspec

from quiesce.api.formats import Grammar, too_large
from quiesce.control.dispatch_codec import MAX_GRAMMAR_CHARS
from quiesce.errors import RequestRejected, invariant
from quiesce.telemetry.logs import ids
from quiesce.text.grammar_checker import LENGTH, TOO_MUCH, Job, Verdict, frame

_PROGRAM = ("-m", "quiesce.text.grammar_checker")
_MOST_WAITING = 64
"""Of one tenant."""

_KEPT = 256
_STUCK_S = 60.0
_SHOWN_CHARS = 300

_log = logging.getLogger(__name__)


class _Line:
    """Those of one tenant that wait. Only the first of them waits for a turn among tenants."""

    def __init__(self) -> None:
        self.first = asyncio.Lock()
        self.length = 0


class GrammarDoor:
    """Starts the process when the first grammar comes, and anew should it end. Lives on one event loop."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._process: Process | None = None
        self._turn = asyncio.Lock()
        self._known: OrderedDict[Job, Verdict] = OrderedDict()
        self._asking: asyncio.Task[Verdict] | None = None
        self._lines: dict[str, _Line] = {}
        self._closed = False

    async def grammar(self, asked: Grammar, tenant: str = "") -> str:
        """The grammar as workers take it. Raises RequestRejected (400, `invalid_grammar`) for what they could not."""
        job = Job(asked.kind, asked.text)
        verdict = self._known.get(job) or await self._verdict(job, tenant)
        if verdict.problem:
            what = " ".join(verdict.problem.split())[:_SHOWN_CHARS]
            raise RequestRejected(
                f"{asked.param} cannot be followed: {what}.", code="invalid_grammar", param=asked.param
            )
        if len(verdict.grammar) > MAX_GRAMMAR_CHARS:
            raise too_large(asked.param)
        return verdict.grammar

    async def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._end()

    async def _verdict(self, job: Job, tenant: str) -> Verdict:
        """Tenants take turns. A client that leaves while it waits is not asked for; see `_begin` for later."""
        line = self._lines.setdefault(tenant, _Line())
        if line.length >= _MOST_WAITING:
            raise RequestRejected("Too many grammars wait to be checked.", code="overloaded", status=503)
        line.length += 1
        try:
            async with line.first:
                await self._turn.acquire()
                return await asyncio.shield(self._begin(job))
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[tenant]

    def _begin(self, job: Job) -> asyncio.Task[Verdict]:
        """What was begun is finished, although its client may leave: question and answer must not come apart."""
        self._asking = asyncio.ensure_future(self._ask(job))
        self._asking.add_done_callback(lambda _: self._turn.release())
        return self._asking

    async def _ask(self, job: Job) -> Verdict:
        if self._closed:
            raise RequestRejected("The server is shutting down.", code="shutting_down", status=503)
        if job not in self._known:
            self._known[job] = await self._answer_of(job)
        self._known.move_to_end(job)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return self._known[job]

    async def _answer_of(self, job: Job) -> Verdict:
        process = self._process if self._process and self._process.returncode is None else await self._start()
        invariant(process.stdin is not None, "checker_has_stdin")
        try:
            process.stdin.write(frame(job))  # type: ignore[union-attr]
            async with asyncio.timeout(_STUCK_S):
                return await _read(process)
        except (EOFError, OSError, TimeoutError):
            _log.warning("the process that checks grammars failed", extra=ids(kind=job.kind, bytes=len(job.text)))
            await self._end()
            return TOO_MUCH

    async def _start(self) -> Process:
        """Raises RequestRejected (503) when there is no such process to be had."""
        await self._end()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *_PROGRAM, self._model),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,  # what it may say quotes clients
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},  # it forks, and threads do not come along
            start_new_session=True,  # Ctrl-C is for the router; and it is ended with its own children
        )
        try:
            problem = (await _read(self._process)).problem
        except EOFError:
            problem = "its process ended at once"
        if problem:
            await self._end()
            _log.error("grammars cannot be checked", extra=ids(reason=problem))
            raise RequestRejected(f"No grammars are served: {problem}.", code="grammars_unavailable", status=503)
        return self._process

    async def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.communicate()
            self._process = None


async def _read(process: Process) -> Verdict:
    """The next frame. Raises EOFError at the end of the process."""
    invariant(process.stdout is not None, "checker_has_stdout")
    head = await process.stdout.readexactly(LENGTH.size)  # type: ignore[union-attr]
    payload = await process.stdout.readexactly(*LENGTH.unpack(head))  # type: ignore[union-attr]
    return msgspec.msgpack.decode(payload, type=Verdict)
