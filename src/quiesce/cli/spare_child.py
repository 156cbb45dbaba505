"""One spare as its supervisor sees it: kept ready, given away when a child needs a life, followed by another."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from quiesce.cli.child import HOPELESS, BackOff, ChildSpec
from quiesce.cli.life import Life, describe_end

CALM_S = 60.0
"""The next spare is not started before the life that took the last one is of use, or has had this long for it."""
PAUSE_S = 10.0
_WITHOUT = "who dies starts anew without one"


class SpareSpec(msgspec.Struct, frozen=True):
    """`spec` starts it; it can become any child whose role is among `roles`."""

    spec: ChildSpec
    roles: frozenset[str]


class SpareChild:
    """`begin` starts a life of the spare; `up(name)` waits until a child is of use."""

    def __init__(
        self,
        spec: SpareSpec,
        begin: Callable[[ChildSpec], Life],
        up: Callable[[str], Awaitable[None]],
        say: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self._begin, self._up, self._say = begin, up, say
        # Slower than a worker's: what nobody needs yet must not take its memory again and again.
        self._back_off = BackOff(first_s=PAUSE_S, most_s=600.0, forgiven_after_s=600.0)
        self._life: Life | None = None
        self._taken: asyncio.Future[str] | None = None

    @property
    def name(self) -> str:
        return self.spec.spec.name

    @property
    def pid(self) -> int | None:
        """Of the process that waits, else None."""
        return self._life.pid if self._life else None

    def fits(self, child: ChildSpec) -> bool:
        """Whether there is a spare now that could become this child."""
        life = self._life
        return child.role in self.spec.roles and life is not None and life.pid is not None and not life.stopped

    def take(self, child: ChildSpec, words: Sequence[str]) -> Life | None:
        """The spare's process, told by `words` to become this child; None when there is none that could."""
        life = self._life
        if life is not None and life.stopped:
            life.signal(signal.SIGKILL)  # `keep` sees its end, and has another one begin
            return None
        if life is None or self._taken is None or not self.fits(child) or not life.tell(words):
            return None
        self._life = None
        self._taken.set_result(child.name)
        return life

    async def keep(self) -> None:
        """Have a spare, until cancelled. One that will not start is given up: children start without it."""
        clock = asyncio.get_running_loop().time
        while True:
            born_s = clock()
            try:
                code = await self._wait()
            except OSError as problem:
                self._say(f"the {self.name} cannot be started: {problem.strerror}; {_WITHOUT}")
                return
            if code is None:
                continue
            if code in HOPELESS:
                self._say(f"the {self.name} {describe_end(code)}; {_WITHOUT}")
                return
            pause_s = PAUSE_S + self._back_off.after(clock() - born_s)
            self._say(f"the {self.name} {describe_end(code)}; the next one starts in {pause_s:g} s")
            await asyncio.sleep(pause_s)

    async def _wait(self) -> int | None:
        """One spare until it is taken (None, once it is of use) or ends; its exit code. Raises OSError."""
        taken = self._taken = asyncio.get_running_loop().create_future()
        life = self._life = self._begin(self.spec.spec)
        ended = asyncio.ensure_future(life.exited())
        try:
            await asyncio.wait((ended, taken), return_when=asyncio.FIRST_COMPLETED)
            if not taken.done():
                return await life.ended()
        finally:
            ended.cancel()
            if not taken.done():
                self._life = None
                life.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALM_S):
                await self._up(taken.result())
        return None
