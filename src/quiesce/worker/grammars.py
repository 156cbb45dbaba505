"""Grammars of requests at a worker: compiled on one thread, followed on others, so that the engine waits for none."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from quiesce.engine.shaping import CannotGoOn, Mask
from quiesce.errors import RequestRejected

if TYPE_CHECKING:  # the library is loaded when the first grammar comes
    from quiesce.text.grammars import Grammars, Matcher

INVALID_GRAMMAR = "invalid_grammar"

_QUICK_THREADS = 4
_LAST = 19


class Lanes:
    """Where masks are made: quick ones side by side; those of slow grammars one after the other, on what is left over
    of the machine.
    """

    def __init__(self) -> None:
        self._quick = ThreadPoolExecutor(_QUICK_THREADS, thread_name_prefix="masks")
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="slow-masks", initializer=_be_last)

    def submit(self, work: Callable[[], None], *, slow: bool) -> None:
        """Run `work` soon, unless the lanes are closed."""
        try:
            (self._slow if slow else self._quick).submit(work)
        except RuntimeError:  # closed: nobody waits for it either
            return

    def close(self) -> None:
        """End the threads as soon as it can be."""
        for lane in (self._quick, self._slow):
            lane.shutdown(wait=False, cancel_futures=True)


class Constraint:
    """One answer's grammar. The driver tells it what was drawn, and the next mask is begun at once, beside the engine.

    Thread-safe: `say` on the driver's thread, `allowed` and `wait` on the engine's, masks on a lane.
    """

    def __init__(self, compiling: Future[Matcher], lanes: Lanes) -> None:
        self._compiling = compiling
        self._lanes = lanes
        self._heard: deque[int] = deque()
        self._next: Future[Mask] = Future()
        self._following = threading.Lock()
        compiling.add_done_callback(lambda _: self._ask())

    def say(self, token: int) -> None:
        """`token` was drawn."""
        self._heard.append(token)
        self._next = Future()
        if self._compiling.done():
            self._ask()

    def allowed(self) -> Mask:
        """Which tokens may be drawn next, bool (vocab,). Raises CannotGoOn. Waits until it is known."""
        return self._next.result()

    def wait(self, at_most_s: float) -> bool:
        """Whether `allowed` would answer at once, if need be after so long."""
        wait((self._next,), at_most_s)
        return self._next.done()

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._compiling.cancel()

    @property
    def is_ready(self) -> bool:
        """The next mask is there, or it is known that there is none."""
        return self._next.done()

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Call `wake` on the running loop as soon as it is ready."""
        loop = asyncio.get_running_loop()
        self._next.add_done_callback(lambda _: _call(loop, wake))

    async def ready(self) -> None:
        """Wait for it, off the engine thread. Raises RequestRejected when it cannot be compiled."""
        from quiesce.text.grammars import Unusable

        try:
            await asyncio.wrap_future(self._compiling)
        except Unusable:
            message = "The grammar cannot be compiled on this worker."
            raise RequestRejected(message, code=INVALID_GRAMMAR) from None
        await asyncio.wait((asyncio.wrap_future(self._next),))

    def _ask(self) -> None:
        answer = self._next
        self._lanes.submit(lambda: self._follow(answer), slow=self._is_slow)

    @property
    def _is_slow(self) -> bool:
        """Whether this grammar is known for it. Failure to compile is quickly told."""
        done = self._compiling
        return not done.cancelled() and done.exception() is None and done.result().compiled.is_slow

    def _follow(self, answer: Future[Mask]) -> None:
        """On a lane. What was asked for twice is answered once."""
        with self._following:
            if answer.done() or not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(self._mask())
            except Exception as error:
                answer.set_exception(error)

    def _mask(self) -> Mask:
        from quiesce.text.grammars import Lost, Unusable

        try:
            matcher = self._compiling.result()
            while self._heard:
                matcher.say(self._heard.popleft())
            return matcher.allowed()
        except (Lost, Unusable) as error:
            # What Unusable says quotes a client, and a failure's words are logged.
            raise CannotGoOn(str(error) if isinstance(error, Lost) else "it cannot be compiled here") from None


class GrammarThread:
    """Compiles for one worker's model. The vocabulary is read when the first grammar comes."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")
        self._lanes = Lanes()
        self._grammars: Grammars | None = None

    def begin(self, grammar: str) -> Constraint | None:
        """Start compiling a request's grammar; None for a request that has none."""
        return Constraint(self._thread.submit(self._compile, grammar), self._lanes) if grammar else None

    def close(self) -> None:
        """End the threads as soon as it can be."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._lanes.close()

    def _compile(self, grammar: str) -> Matcher:
        if self._grammars is None:
            from quiesce.text.grammars import Grammars
            from quiesce.text.model import TextModel

            self._grammars = Grammars(TextModel.load(self._model))
        return self._grammars.compile(grammar)


def _be_last() -> None:
    """Linux counts niceness by thread."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LAST)


def _call(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(wake)
