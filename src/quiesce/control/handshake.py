"""Two workers find out whether they fit, and exchange what memory needs: descriptors, a descriptor's meaning, pidfds.

::

    decode                                          prefill
      HELLO(nonce d)                          ->              (read by `first_frame`)
                                              <-    HELLO(nonce p, echo d) + its pidfd
      OPEN(echo p, descriptor) + its pidfd, fds ->
                                              <-    READY(descriptor) + fds

One of the two descriptors means anything: OPEN's where prefill writes (push), READY's where decode reads (pull).

Either side may answer REFUSAL(reason) instead and hang up; both then raise HandshakeRefused with that reason. Each
frame is one `sendmsg`; its descriptors travel with its first byte. Nonces are fresh per stream, so nothing of an
earlier stream can be replayed into this one.

Between hosts no descriptor travels: there are no pidfds, and a pool that is described by descriptors is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from quiesce.control import frames
from quiesce.control.bounds import check_hex_128, check_text
from quiesce.control.connection import Connection, identity_of, is_local, require_grant
from quiesce.control.credentials import peer_credentials
from quiesce.control.hello_codec import check_hello, other_version
from quiesce.control.process_fd import own_pidfd, require_pidfd_of
from quiesce.control.single_frame import MAX_FDS, close_fds, read_frame, write_frame
from quiesce.errors import BadFrame, HandshakeRefused, PeerUnusable, invariant
from quiesce.protocol.hello import PULL, Hello, mismatch, version_differs
from quiesce.trust.wording import in_words

HANDSHAKE_DEADLINE_S = 10.0
MAX_DESCRIPTOR_BYTES = 32 << 10
MAX_REASON_CHARS = 4096

Describe = Callable[[Hello], tuple[bytes, Sequence[int]]]
"""The pool as this peer is to see it, and the file descriptors that go with it."""


def describe_nothing(theirs: Hello) -> tuple[bytes, Sequence[int]]:
    """What the side says whose pool the other never touches."""
    return b"", ()


R = TypeVar("R")
Frame = TypeVar("Frame", bound=msgspec.Struct)


class Open(msgspec.Struct, frozen=True, tag="open"):
    """decode -> prefill: my pool, where prefill writes. `echo` is the nonce of prefill's HELLO."""

    echo: str
    descriptor: bytes


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """prefill -> decode: accepted; protocol messages follow. The descriptor is of its pool, where decode reads."""

    descriptor: bytes = b""


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """either -> other, last: why not."""

    reason: str


class Opened(msgspec.Struct):
    """A handshake that succeeded. The descriptors belong to the receiver of this object; `close` closes them.

    `descriptor` and `fds` are the other side's pool: whoever moves the pages gets them, the other nothing. `pidfd`
    stands for the process at the other end, on both sides; -1 when that is on another host.
    """

    hello: Hello
    fds: list[int]
    descriptor: bytes
    pidfd: int

    def close(self) -> None:
        """Close every descriptor that is still here; one that was handed on must have been taken out of `fds`."""
        close_fds(list({*self.fds, self.pidfd} - {-1}))
        self.fds, self.pidfd = [], -1


_decode = frames.decoder_of(Hello | Open | Ready | Refusal)


async def offer(
    sock: Connection,
    hello: Hello,
    describe: Describe,
    timeout_s: float = HANDSHAKE_DEADLINE_S,
) -> Opened:
    """Decode's side, on a freshly dialled socket. `hello.nonce` and `.echo` are replaced.

    `describe` is asked once the peer is known to fit; its descriptors stay the caller's. It may raise PeerUnusable.

    Raises HandshakeRefused (they do not fit), BadFrame (nonsense) or PeerUnusable (gone, or silent for `timeout_s`);
    the socket is closed then, and so is every descriptor that was received.
    """
    talk = _Conversation(sock)
    return await talk.guard(_offer(talk, _fresh(hello), describe), timeout_s)


async def accept(
    sock: Connection,
    first: Hello,
    mine: Hello,
    describe: Describe = describe_nothing,
    timeout_s: float = HANDSHAKE_DEADLINE_S,
) -> Opened:
    """Prefill's side, after `first_frame` gave `first`. Asks, raises and cleans up as `offer` does."""
    talk = _Conversation(sock)
    return await talk.guard(_accept(talk, first, _fresh(mine, echo=first.nonce), describe), timeout_s)


def refuse(sock: Connection, reason: str) -> None:
    """Answer a HELLO that cannot be accepted now with `reason`, and close the socket."""
    _Conversation(sock).abandon(HandshakeRefused(reason))


async def _offer(talk: _Conversation, mine: Hello, describe: Describe) -> Opened:
    await talk.send(mine)
    theirs = await talk.receive_hello(mine)
    if theirs.echo != mine.nonce:
        raise HandshakeRefused("HELLO does not echo this stream's nonce")
    _require_fit(mine, theirs)
    talk.require_grant(theirs)
    talk.require_fds(1)
    descriptor, fds = talk.described(mine, describe(theirs))
    await talk.send_with_pidfd(Open(theirs.nonce, descriptor), fds)
    ready = await talk.receive(Ready)
    if mine.transfer != PULL:
        talk.require_fds(1)
        _require_none("READY", ready.descriptor, mine)
    pidfd, received = talk.take_pidfd()
    return Opened(theirs, received, ready.descriptor, pidfd)


async def _accept(talk: _Conversation, theirs: Hello, mine: Hello, describe: Describe) -> Opened:
    check_hello(theirs)
    if theirs.echo:
        raise HandshakeRefused("the first HELLO of a stream echoes a nonce that was never sent")
    _require_fit(mine, theirs)
    talk.require_grant(theirs)
    await talk.send_with_pidfd(mine, ())
    opening = await talk.receive(Open)
    if opening.echo != mine.nonce:
        raise HandshakeRefused("OPEN does not echo this stream's nonce")
    if mine.transfer == PULL:
        talk.require_fds(1)
        _require_none("OPEN", opening.descriptor, mine)
    talk.require_fds()
    descriptor, fds = talk.described(mine, describe(theirs))
    await talk.send(Ready(descriptor), fds)
    pidfd, received = talk.take_pidfd()
    return Opened(theirs, received, opening.descriptor, pidfd)


def _require_none(frame: str, descriptor: bytes, mine: Hello) -> None:
    if descriptor:
        raise BadFrame(f"{frame} describes a pool although --transfer is {mine.transfer}")


def _fresh(hello: Hello, echo: str = "") -> Hello:
    return msgspec.structs.replace(hello, nonce=secrets.token_hex(16), echo=echo)


def _require_fit(mine: Hello, theirs: Hello) -> None:
    if reason := mismatch(mine, theirs):
        raise HandshakeRefused(reason)


class _Conversation:
    """A socket during the handshake, and the descriptors received so far."""

    def __init__(self, sock: Connection) -> None:
        self._sock = sock
        self._local = is_local(sock)
        self._fds: list[int] = []

    async def guard(self, steps: Coroutine[Any, Any, R], timeout_s: float) -> R:
        """Run `steps`; whatever ends them early, tell the peer why, close everything and raise what fits."""
        try:
            async with asyncio.timeout(timeout_s):
                return await steps
        except TimeoutError:
            silent = PeerUnusable(f"the handshake did not end within {timeout_s:g} s", took_effect=False)
            self.abandon(silent)
            raise silent from None
        except OSError as error:
            self.abandon(error)
            raise PeerUnusable(f"the handshake failed: {in_words(error)}", took_effect=False) from error
        except BaseException as error:
            self.abandon(error)
            raise

    async def send(self, frame: msgspec.Struct, fds: Sequence[int] = ()) -> None:
        await write_frame(self._sock, frames.encode(frame), fds)

    async def send_with_pidfd(self, frame: msgspec.Struct, fds: Sequence[int]) -> None:
        if not self._local:
            await self.send(frame)
            return
        pidfd = own_pidfd()
        try:
            await self.send(frame, (pidfd, *fds))
        finally:
            os.close(pidfd)

    async def receive_hello(self, mine: Hello) -> Hello:
        """Also one of another version says which that is, and both sides hear it."""
        payload = await read_frame(self._sock, self._fds)
        if (other := other_version(payload)) is not None:
            raise HandshakeRefused(version_differs(mine, other))
        return self._checked(payload, Hello)

    async def receive(self, kind: type[Frame]) -> Frame:
        return self._checked(await read_frame(self._sock, self._fds), kind)

    def _checked(self, payload: bytes, kind: type[Frame]) -> Frame:
        frame = _decode(payload)
        if isinstance(frame, Refusal):
            check_text("reason", frame.reason, MAX_REASON_CHARS)
            raise HandshakeRefused(frame.reason)
        if not isinstance(frame, kind):
            raise BadFrame(f"{type(frame).__name__} came where {kind.__name__} was due")
        _check_bounds(frame)
        return frame

    def require_fds(self, exactly: int | None = None) -> None:
        """The first descriptor must be the peer's pidfd; `exactly` says how many there may be in all."""
        if not is_local(self._sock):
            return
        if not self._fds or (exactly is not None and len(self._fds) != exactly):
            raise HandshakeRefused(f"{len(self._fds)} file descriptors came; {exactly or 'at least 1'} expected")
        require_pidfd_of(self._fds[0], peer_credentials(self._sock).pid)

    def require_grant(self, theirs: Hello) -> None:
        require_grant(identity_of(self._sock), theirs.role, theirs.worker)

    def described(self, mine: Hello, pool: tuple[bytes, Sequence[int]]) -> tuple[bytes, Sequence[int]]:
        """The own pool, which must fit into a frame and, if it is memory, go where the peer is."""
        descriptor, fds = pool
        self._require_sendable(mine, fds)
        invariant(len(descriptor) <= MAX_DESCRIPTOR_BYTES and len(fds) < MAX_FDS, "descriptor_fits")
        return descriptor, fds

    def _require_sendable(self, mine: Hello, fds: Sequence[int]) -> None:
        if fds and not self._local:
            raise HandshakeRefused(
                f"transport {mine.transport} shares memory, which ends at this host: give both workers --transport tcp"
            )

    def take_pidfd(self) -> tuple[int, list[int]]:
        """The peer's pidfd (-1 from another host), and the descriptors that came after it."""
        fds, self._fds = self._fds, []
        return (fds[0], fds[1:]) if fds else (-1, [])

    def abandon(self, error: BaseException) -> None:
        """Close everything; the peer hears the reason if it has room for it right now."""
        close_fds(self._fds)
        if isinstance(error, PeerUnusable):
            refusal = frames.encode(Refusal(error.message[:MAX_REASON_CHARS]))
            with contextlib.suppress(OSError):
                self._sock.setblocking(False)
                self._sock.send(refusal)
        self._sock.close()


def _check_bounds(frame: msgspec.Struct) -> None:
    match frame:
        case Hello():
            check_hello(frame)
        case Open():
            check_hex_128("echo", frame.echo)
            _check_descriptor(frame.descriptor)
        case Ready():
            _check_descriptor(frame.descriptor)


def _check_descriptor(descriptor: bytes) -> None:
    if len(descriptor) > MAX_DESCRIPTOR_BYTES:
        raise BadFrame(f"descriptor: {len(descriptor)} bytes; at most {MAX_DESCRIPTOR_BYTES} are allowed")
