"""A transport that breaks its word on command, around any backend's sender: what arrives is no longer what is said."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Sequence

import msgspec

from quiesce.kv.storage import Pool
from quiesce.lab.faults import Fate, Faults, LetGo, Step
from quiesce.protocol.hello import Capabilities
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Completion, Sender, Target, Write

MakeSender = Callable[[Pool], Sender]
WHY = "the laboratory has it so"


class Flipping:
    """A second sender of the same backend, whose pool is a copy in which one bit differs. Made for the first write."""

    def __init__(self, make: MakeSender, pool: Pool) -> None:
        self._pool = pool
        self._copy = Pool.private(pool.layout, pool.pages)
        self.sender = make(self._copy)
        self.targets: dict[Target, Target] = {}

    def launch(self, target: Target, described: tuple[bytes, list[int]], write: Write) -> None:
        """`target` is the first sender's, and was opened by what is `described`."""
        pages, copied = write.source_pages, self._copy.page_view()
        copied[pages] = self._pool.page_view()[pages]
        copied[pages[0], copied.shape[1] // 2] ^= 1
        if target not in self.targets:
            self.targets[target] = self.sender.open_target(*described)
        self.sender.launch(self.targets[target], write)

    def close(self) -> None:
        self.sender.close()
        self._copy.close()


class FatedSender:
    """`inner` over `pool`, of which `faults` doom some writes; `make` makes another sender of its kind.

    With `waits` writes are held and delayed here, before `inner` hears of them: for a backend that cannot do so itself.
    """

    def __init__(self, inner: Sender, make: MakeSender, pool: Pool, faults: Faults, *, waits: bool = False) -> None:
        self._inner, self._make, self._pool, self._faults, self._waits = inner, make, pool, faults, waits
        self._flipping: Flipping | None = None
        self._described: dict[Target, tuple[bytes, list[int]]] = {}  # to open a target once more
        self._said: list[Completion] = []
        self._disowned: set[int] = set()  # told as failed: nobody hears how they end
        self._waiting: dict[asyncio.Task[None], Write] = {}
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ends = select.epoll()
        for fd in (self._fd, inner.completion_fd):
            self._ends.register(fd, select.EPOLLIN)

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    @property
    def completion_fd(self) -> int:
        return self._ends.fileno()

    def open_target(self, descriptor: bytes, fds: Sequence[int]) -> Target:
        target = self._inner.open_target(descriptor, fds)
        self._described[target] = descriptor, [os.dup(fd) for fd in fds]
        return target

    def launch(self, target: Target, write: Write) -> None:
        match self._faults.fate_of(write):
            case None:
                self._launch(target, write)
            case Fate.DROP:
                self._say(write, Outcome.LANDED)
            case Fate.FAIL:
                self._say(write, Outcome.FAILED_QUIESCED)
            case Fate.TRUNCATE:
                half = slice(len(write.target_pages) // 2)
                halves = {"source_pages": write.source_pages[half], "target_pages": write.target_pages[half]}
                self._inner.launch(target, msgspec.structs.replace(write, **halves))
            case Fate.BITFLIP:
                self._flipping = self._flipping or self._begin_flipping()
                self._flipping.launch(target, self._described[target], write)
            case Fate.FAIL_BUT_LAND:
                self._disowned.add(write.id)
                self._say(write, Outcome.FAILED_IN_FLIGHT)
                self._inner.launch(target, write)

    def completions(self) -> list[Completion]:
        if self._fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._fd)
        said, self._said = self._said, []
        ended = self._inner.completions()
        if self._waits:
            for each in ended:
                self._faults.after(each.id)
        flipped = self._flipping.sender.completions() if self._flipping else []
        return [*said, *(each for each in ended if each.id not in self._disowned), *flipped]

    def close_target(self, target: Target) -> None:
        self._inner.close_target(target)
        _, fds = self._described.pop(target, (b"", []))
        for fd in fds:
            os.close(fd)
        if self._flipping and (flipped := self._flipping.targets.pop(target, None)) is not None:
            self._flipping.sender.close_target(flipped)

    def close(self) -> None:
        for task, write in self._waiting.items():
            task.cancel()
            self._say(write, Outcome.FAILED_QUIESCED)
        if self._waits:
            self._faults.order(LetGo())
        self._inner.close()
        if self._flipping:
            self._flipping.close()
        for target in list(self._described):
            self.close_target(target)
        self._ends.close()
        os.close(self._fd)
        self._fd = -1

    # ------------------------------------------------------------ waiting

    def _launch(self, target: Target, write: Write) -> None:
        if not self._waits:
            self._inner.launch(target, write)
            return
        task = asyncio.get_running_loop().create_task(self._launch_later(target, write))
        self._waiting[task] = write
        task.add_done_callback(self._waiting.pop)

    async def _launch_later(self, target: Target, write: Write) -> None:
        await asyncio.to_thread(self._wait, write)
        self._inner.launch(target, write)

    def _wait(self, write: Write) -> None:
        self._faults.pace()
        self._faults.before(Step.BYTES, write)

    # ------------------------------------------------------------ fates

    def _say(self, write: Write, outcome: Outcome) -> None:
        n_bytes = len(write.target_pages) * self._pool.layout.page_bytes
        self._said.append(Completion(write.id, outcome, n_bytes, 0.0, "" if outcome is Outcome.LANDED else WHY))
        os.eventfd_write(self._fd, 1)

    def _begin_flipping(self) -> Flipping:
        flipping = Flipping(self._make, self._pool)
        self._ends.register(flipping.sender.completion_fd, select.EPOLLIN)
        return flipping
