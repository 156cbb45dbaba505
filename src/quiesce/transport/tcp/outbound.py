"""One data connection at the sender: writes go out one after the other, replies come back in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from quiesce.errors import BadFrame, PeerUnusable
from quiesce.kv.runs import pack_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Write
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.line import TcpLine
from quiesce.transport.tcp.sockets import Buffer, receive_exactly
from quiesce.trust.contexts import Tls
from quiesce.trust.wording import in_words

log = logging.getLogger(__name__)

Told = Callable[[Outcome, str], None]
"""How a write ended: called once, from any thread."""


class Outbound(TcpLine[Write]):
    """`send` is called from one thread."""

    dials = "decode"

    def __init__(self, pool: Pool, descriptor: wire.TcpDescriptor, tls: Tls | None = None) -> None:
        """As `TcpLine`."""
        super().__init__(pool, descriptor, tls)
        self._pending: dict[int, tuple[Write, Told]] = {}
        self._leaving = 0  # number of the write that `send` still reads the pages of
        self._settled = threading.Condition(self._lock)
        self._replies = threading.Thread(target=self._hear, name="page-replies", daemon=True)
        try:
            self._replies.start()
        except RuntimeError as error:  # too many threads, for now
            self._stream.close()
            self._memory.release()
            raise PeerUnusable(f"a connection was closed again: {error}", took_effect=False) from error

    def carries(self, job: Write) -> bool:
        with self._lock:
            return any(each is job for each, _ in self._pending.values())

    def send(self, write: Write, may_leave: Callable[[], bool], told: Told) -> None:
        """Send one write whole: failed_quiesced when the kernel took no byte of a page, unknown when it took some.

        `may_leave` is asked once `carries` answers for the write: whoever gives it up from then on finds it here.
        """
        with self._lock:
            broken = self._broken
            if not broken:
                self._number += 1
                number = self._leaving = self._number
                self._pending[number] = write, told
        if broken:
            told(Outcome.FAILED_QUIESCED, broken)
            return
        try:
            if may_leave():
                self._leave(number, write)
            else:
                self._tell(number, Outcome.FAILED_QUIESCED, "its time was over before it left")
        finally:
            with self._lock:
                self._leaving = 0
                self._settled.notify_all()

    def _leave(self, number: int, write: Write) -> None:
        spans = None
        try:
            self._stream.send(self._announcement(number, write))  # by itself: the receiver reads it meanwhile
            spans = self._spans(write.source_pages)
            self._stream.send_spans(spans)
        except OSError as error:
            if spans is None or spans.is_whole:
                self._tell(number, Outcome.FAILED_QUIESCED, f"no byte of a page was sent: {in_words(error)}")
            self.fail(f"the connection broke: {in_words(error)}")
        except Exception as error:  # a fault of ours: how much of it has left is not known
            log.exception("write %d failed", write.id)
            self.fail(f"{type(error).__name__}: {error}")

    def fail(self, reason: str) -> None:
        """Break the connection, from any thread: what has no reply may still land."""
        with self._lock:
            self._broken = self._broken or reason
            pending, self._pending = self._pending, {}
            self._settled.notify_all()
        self._stream.hang_up()
        for _, told in pending.values():
            told(Outcome.FAILED_IN_FLIGHT, f"{reason}; it may still land")

    def close(self) -> None:
        """By the thread that sends, when nothing follows: wait until each write has its reply or was given up.

        Who launched them sees to it that this ends: a write whose deadline passes is given up (`fail`).
        """
        with self._lock:
            self._settled.wait_for(lambda: not self._pending)
            self._broken = self._broken or "the sender is closed"
        self._stream.hang_up()
        self._replies.join()
        self._stream.close()
        self._memory.release()

    def _announcement(self, number: int, write: Write) -> list[Buffer]:
        metadata = write.metadata
        slot = None if metadata is None else metadata.slot
        runs = pack_runs(write.target_pages)
        header = wire.Header(number, write.tag, len(write.target_pages), len(runs) // wire.RUN_BYTES, slot)
        words = b"" if metadata is None else wire.encode_words(metadata.words)
        return [wire.encode_header(header), words, runs]

    def _hear(self) -> None:
        try:
            while True:
                number, verdict, n_reason = wire.decode_reply(receive_exactly(self._stream, wire.REPLY_BYTES))
                if verdict is wire.Verdict.COMING:
                    raise BadFrame("pages come in answer to a write")
                reason = receive_exactly(self._stream, n_reason).decode(errors="replace")
                landed = verdict is wire.Verdict.LANDED
                self._wait_until_left(number)
                self._tell(number, Outcome.LANDED if landed else Outcome.FAILED_QUIESCED, reason)
        except (PeerUnusable, OSError) as error:
            self.fail(f"the receiver hung up: {in_words(error)}")

    def _wait_until_left(self, number: int) -> None:
        """Whoever is told uses the pages again: an answer may be false, and come before they were sent."""
        with self._lock:
            self._settled.wait_for(lambda: self._leaving != number)

    def _tell(self, number: int, outcome: Outcome, reason: str) -> None:
        with self._lock:
            pending = self._pending.pop(number, None)
            self._settled.notify_all()
        if pending is not None:  # what was declared unknown already stays so
            pending[1](outcome, reason)
