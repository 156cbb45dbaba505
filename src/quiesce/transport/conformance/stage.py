"""Two real processes and what a check may do with them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from quiesce.errors import PeerUnusable, invariant
from quiesce.transport.conformance.calls import MOST_BYTES, Answer, Call
from quiesce.transport.conformance.patterns import digest_of
from quiesce.transport.conformance.roles import play

TAG = 77
SLOTS = 4
SETTLED_LOOKS, LOOK_S = 8, 0.03
ANSWER_S = 120.0
"""No answer of a working actor takes so long; then the check fails instead of hanging."""

Ends = list[tuple[int, str, str]]


# Actors are forked from a process that has imported all they need and has no threads: it starts none, ever.
_ACTORS = multiprocessing.get_context("forkserver")
_ACTORS.set_forkserver_preload([play.__module__])


class Actor:
    """One process. `call` raises PeerUnusable for what the actor raised, or when it is gone."""

    def __init__(self, role: str) -> None:
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.settimeout(ANSWER_S)
        self._process = _ACTORS.Process(target=play, args=(role, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        invariant(pid is not None, "actor_started")
        return pid or 0

    def call(self, name: str, *arguments: Any, fds: Sequence[int] = ()) -> Any:
        self.ask(name, *arguments, fds=fds)
        return self.answer()[0]

    def ask(self, name: str, *arguments: Any, fds: Sequence[int] = ()) -> None:
        """Begin a call without waiting for its answer, which `answer` gives."""
        try:
            socket.send_fds(self._sock, [msgspec.msgpack.encode(Call(name, list(arguments)))], list(fds))
        except OSError as error:
            raise PeerUnusable(f"an actor is gone: {error}") from error

    def answer(self) -> tuple[Any, list[int]]:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, MOST_BYTES, 4)
        except OSError as error:
            raise PeerUnusable(f"an actor does not answer: {error}") from error
        if not data:
            raise PeerUnusable("an actor is gone")
        answer = msgspec.msgpack.decode(data, type=Answer)
        if answer.raised:
            raise PeerUnusable(answer.raised)
        return answer.value, fds

    def stop(self) -> None:
        """SIGSTOP, and wait until it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        state = Path(f"/proc/{self.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            os.sched_yield()

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def has_ended(self, within_s: float) -> bool:
        """Whether its process is over, by itself, waiting for it so long."""
        self._process.join(within_s)
        return self._process.exitcode is not None

    def kill(self) -> None:
        """SIGKILL, and wait until it is reaped."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        self.go_on()
        self.kill()
        self._sock.close()


class Scene:
    """Two actors: who launches, and in whose pool it lands."""

    def __init__(self, launcher: Actor, target: Actor, page_bytes: int, pages: int) -> None:
        self.launcher, self.target, self.page_bytes, self.n_pages = launcher, target, page_bytes, pages

    def settled_image(self) -> int:
        """The image once it stays the same: whatever was queued anywhere has been placed or dropped."""
        image = self.image()
        while not self.stays(image):
            image = self.image()
        return image

    def stays(self, image: int) -> bool:
        """Whether it does for a while."""
        for _ in range(SETTLED_LOOKS):
            time.sleep(LOOK_S)
            if self.image() != image:
                return False
        return True

    def all_pages(self) -> list[int]:
        return list(range(self.n_pages))

    def ends(self, count: int, timeout_s: float = 60.0) -> Ends:
        ends: Ends = [tuple(each) for each in self.launcher.call("wait", count, timeout_s)]
        return ends

    def outcomes(self, count: int, timeout_s: float = 60.0) -> dict[int, str]:
        return {id_: outcome for id_, outcome, _ in self.ends(count, timeout_s)}

    def holds(self, pages: Sequence[int], seed: int, source: Sequence[int]) -> list[bool]:
        """For each of `pages` whether it holds page `source[i]` of the pattern."""
        said = self.target.call("pages", list(pages))
        return [got == digest_of(seed, page, self.page_bytes) for got, page in zip(said, source, strict=True)]

    def image(self) -> int:
        image: int = self.target.call("image")
        return image


class Stage(Scene):
    """A receiver with a fresh pool of zeros, a writer whose source holds pattern 1, joined."""

    def __init__(
        self,
        backend: str,
        *,
        page_bytes: int = 4096,
        pages: int = 32,
        slots: int = SLOTS,
        call_deadline_s: float = 60.0,
        guarded: bool = False,
    ) -> None:
        self.receiver, self.writer = Actor("receiver"), Actor("writer")
        super().__init__(self.writer, self.receiver, page_bytes, pages)
        if guarded:
            self.receiver.call("between_guards")
        self.port = self.receiver.call("open", backend, page_bytes, pages, slots, 0)
        self.slots: int = self.receiver.call("slots")
        self.writer.call("open", backend, page_bytes, pages, call_deadline_s)
        self.writer.call("fill", 1)
        self.join()

    def join(self) -> None:
        """The receiver describes its pool, watches the writer, and the writer opens the target."""
        self.receiver.ask("describe")
        descriptor, fds = self.receiver.answer()
        self.receiver.call("watch", self.writer.pid)
        self.writer.call("open_target", descriptor, fds=fds)
        for fd in fds:
            os.close(fd)

    def warm_up(self) -> None:
        """Connections are made at the first write: let one page land."""
        self.launch(0, [0], [0])
        self.ends(1)

    def arm(self, pages: Sequence[int], slot: int = 0, tag: int = TAG) -> None:
        self.receiver.call("arm", tag, list(pages), slot)

    def launch(
        self, id_: int, source: Sequence[int], target: Sequence[int], words: list[int] | None = None, tag: int = TAG
    ) -> None:
        self.writer.call("launch", id_, list(source), list(target), tag, words)

    def close(self) -> None:
        self.writer.close()
        self.receiver.close()


@contextlib.contextmanager
def stage(
    backend: str,
    *,
    page_bytes: int = 4096,
    pages: int = 32,
    slots: int = SLOTS,
    call_deadline_s: float = 60.0,
    guarded: bool = False,
) -> Iterator[Stage]:
    """`guarded`: the receiver's pool has mappings of nobody's around it (`guard`)."""
    made = Stage(
        backend, page_bytes=page_bytes, pages=pages, slots=slots, call_deadline_s=call_deadline_s, guarded=guarded
    )
    try:
        yield made
    finally:
        made.close()
