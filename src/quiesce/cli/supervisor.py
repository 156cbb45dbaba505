"""Keeps children alive while serving, stops them in order when not, and never outlives them nor they it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Self

import msgspec

from quiesce.cli.child import HOPELESS, BackOff, Child, ChildSpec
from quiesce.cli.life import Life, describe_end
from quiesce.cli.spare_child import SpareChild, SpareSpec
from quiesce.errors import MachineLacksError

FIRST_LIVES = 3
"""A child that never became ready is started this often, then serving is given up."""
GREETS_WITHIN_S = 60.0
"""A spare that has taken a place must be heard within this, or twice what a child took that began from nothing."""
_REAP_S = 5.0
_AGAIN_S = 0.5


class GaveUp(msgspec.Struct, frozen=True):
    """A child that cannot be started: why, and the exit code to end with."""

    reason: str
    exit_code: int


class Supervisor:
    """Use as `async with`. Children start at once; leaving the block kills whatever still lives."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        say: Callable[[str], None],
        *,
        environ: Mapping[str, str],
        back_off: Callable[[], BackOff] = BackOff,
        argv_for: Callable[[ChildSpec, int], tuple[str, ...]] | None = None,
        hear: Callable[[str], None] | None = None,
        spares: Sequence[SpareSpec] = (),
        up: Callable[[str], Awaitable[None]] | None = None,
        heard: Callable[[str], Awaitable[None]] | None = None,
        greets_within_s: float = GREETS_WITHIN_S,
    ) -> None:
        """`say` gets the supervisor's own words, `hear` the lines of children's stderr (None: they write to ours).

        `spares` are started by `begin_spares`; `up(name)` waits until a child is of use, `heard(name)` until it says
        anything at all.
        """
        self._heard, self._greets_within_s = heard or _at_once, greets_within_s
        self._began_s = asyncio.get_running_loop().time()
        self._parent_fd, self._held_fd = os.pipe()
        self._argv_for = argv_for or with_parent_fd
        self._hear = hear
        self.children = {spec.name: Child(spec, back_off()) for spec in specs}
        self.spares = [SpareChild(spare, self._begin, up or _at_once, say) for spare in spares]
        self._keeping_spares: list[asyncio.Task[None]] = []
        self._say = say
        self._environ = environ
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.gave_up: asyncio.Future[GaveUp] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        self._tasks = {name: asyncio.create_task(self._keep(child)) for name, child in self.children.items()}
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self._end_spares()
        await self._settled(self.children, _REAP_S)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        os.close(self._parent_fd)
        os.close(self._held_fd)

    async def drain(self, stages: Sequence[tuple[Collection[str], float]]) -> None:
        """SIGTERM the children of one stage after the other; each stage has its seconds, then SIGKILL.

        Who is not told yet serves those who are: it lives again if it dies, but no spare is kept for it.
        """
        await self._end_spares()
        for names, seconds in stages:
            for name in names:
                self.children[name].stopping.set()
                self.children[name].signal(signal.SIGTERM)
            for name in await self._settled(names, seconds):
                self._say(f"{name} did not stop within {seconds:g} s and is killed")
                self.children[name].signal(signal.SIGKILL)

    async def hurry(self, name: str, seconds: float) -> None:
        """SIGTERM a child once more, which ends its requests now, and let it exit within `seconds`."""
        for _ in range(math.ceil(seconds / _AGAIN_S)):
            # More than once: two signals are one if the child sees neither before the other.
            self.children[name].signal(signal.SIGTERM)
            if not await self._settled([name], _AGAIN_S):
                return

    def begin_spares(self) -> None:
        """From now on there are spares: not sooner than the processes that are needed."""
        self._keeping_spares = [asyncio.create_task(spare.keep()) for spare in self.spares]

    async def _end_spares(self) -> None:
        for task in self._keeping_spares:
            task.cancel()
        await asyncio.gather(*self._keeping_spares, return_exceptions=True)

    def kill(self) -> None:
        """SIGKILL every child now and start none again."""
        for child in self.children.values():
            child.stopping.set()
            child.signal(signal.SIGKILL)

    def mark_ready(self, name: str) -> None:
        """From now on a crash of this child is an accident, not a failed start."""
        if not self.children[name].ready_once:
            self.children[name].ready_once = True
            took_s = asyncio.get_running_loop().time() - self._began_s
            self._greets_within_s = max(self._greets_within_s, 2 * took_s)

    async def _settled(self, names: Collection[str], seconds: float) -> list[str]:
        """Wait until these children are gone for good; the names of those that are not after `seconds`."""
        tasks = {self._tasks[name]: name for name in names if name in self._tasks}
        if not tasks:
            return []
        _, pending = await asyncio.wait(tasks, timeout=seconds)
        return [tasks[task] for task in pending]

    async def _keep(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        while not child.stopping.is_set():
            born = clock()
            code = await self._live(child)
            if child.stopping.is_set() or self._is_over(child, code):
                return
            if code or not child.ready_once:
                await self._pause(child, code, clock() - born)
            else:  # it was told to stop, as `quiesce restart` does: no accident
                self._say(f"{child.name} has stopped as told; {self._next(child)}")

    async def _live(self, child: Child) -> int:
        if spare := self._from_spare(child):
            return await self._live_as_spare(child, spare)
        child.takes_spares = True
        try:
            return await child.live(self._begin(child.spec))
        except OSError as problem:
            self._say(f"{child.name} cannot be started: {problem.strerror}")
            return MachineLacksError.exit_code

    async def _live_as_spare(self, child: Child, life: Life) -> int:
        watching = asyncio.ensure_future(self._must_be_heard(child, life))
        try:
            return await child.live(life)
        finally:
            watching.cancel()

    async def _must_be_heard(self, child: Child, life: Life) -> None:
        """A process that hangs ends by itself never, and holds a place that another could fill."""
        try:
            async with asyncio.timeout(self._greets_within_s):
                await self._heard(child.name)
        except TimeoutError:
            child.takes_spares = False
            self._say(f"the spare that took {child.name}'s place is not heard of within {self._greets_within_s:g} s")
            life.signal(signal.SIGKILL)

    def _from_spare(self, child: Child) -> Life | None:
        if not child.takes_spares:
            return None
        words = self._argv_for(msgspec.structs.replace(child.spec, argv=child.spec.words), self._parent_fd)
        return next((life for spare in self.spares if (life := spare.take(child.spec, words))), None)

    def _begin(self, spec: ChildSpec) -> Life:
        """Raises OSError when the program cannot be run."""
        told = any(spec is spare.spec.spec for spare in self.spares)
        return Life.begin(self._argv_for(spec, self._parent_fd), self._parent_fd, self._environ, self._hear, told=told)

    async def _pause(self, child: Child, code: int, lived_s: float) -> None:
        pause_s = child.back_off.after(lived_s)
        self._say(f"{child.name} {describe_end(code)}; {self._next(child, pause_s)}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await child.stopping.wait()

    def _next(self, child: Child, pause_s: float = 0.0) -> str:
        """Where its next life comes from, and when."""
        fits = child.takes_spares and any(spare.fits(child.spec) for spare in self.spares)
        who = "a spare takes its place" if fits else "it starts again"
        return f"{who} in {pause_s:g} s" if pause_s else f"{who} now"

    def _is_over(self, child: Child, code: int) -> bool:
        """Whether the child failed to start in a way that starting again will not cure."""
        if child.ready_once or not (code in HOPELESS or child.lives >= FIRST_LIVES):
            return False
        reason = f"{child.name} {describe_end(code)} before it was ready"
        if not self.gave_up.done():
            self.gave_up.set_result(GaveUp(reason, code if code > 0 else 1))
        return True


async def _at_once(name: str) -> None:
    """Nobody can say when a child is of use."""


def with_parent_fd(spec: ChildSpec, parent_fd: int) -> tuple[str, ...]:
    """How a quiesce command is told the pipe it must not outlive."""
    return (*spec.argv, "--parent-fd", str(parent_fd))
