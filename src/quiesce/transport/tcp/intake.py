"""One data connection at the puller: a read goes out as a request, its pages come back straight to their places."""

from __future__ import annotations

import logging
from collections.abc import Callable

from quiesce.errors import BadFrame, PeerUnusable
from quiesce.kv.runs import pack_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.pulling import Read
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.line import TcpLine
from quiesce.transport.tcp.sockets import Hangup, receive_exactly
from quiesce.trust.contexts import Tls
from quiesce.trust.wording import in_words

log = logging.getLogger(__name__)


class Intake(TcpLine[Read]):
    """`read` is called from one thread, one read after the other.

    That thread alone places bytes. So when `read` returns, nothing of it lands any more, however it ended: what the
    lender or the network still holds meets a connection that nobody reads from.
    """

    dials = "prefill"

    def __init__(self, pool: Pool, descriptor: wire.TcpDescriptor, tls: Tls | None = None) -> None:
        """As `TcpLine`."""
        self._reading: Read | None = None
        super().__init__(pool, descriptor, tls)

    def carries(self, job: Read) -> bool:
        with self._lock:
            return self._reading is job

    def read(self, read: Read, may_leave: Callable[[], bool]) -> tuple[Outcome, str]:
        """Carry out one read, to its end: its outcome, `landed` or `failed_quiesced`, and why.

        `may_leave` is asked once `carries` answers for the read: whoever gives it up from then on finds it here.
        """
        with self._lock:
            self._reading = read
        try:
            if not may_leave():
                return Outcome.FAILED_QUIESCED, "its time was over before it left"
            refused = self._fetch(read)
        except (OSError, PeerUnusable) as error:
            self.fail(f"the connection broke: {in_words(error)}")
            return Outcome.FAILED_QUIESCED, self._broken
        except Exception as error:  # a fault of ours: what still comes would be taken for the next read's
            log.exception("read %d failed", read.id)
            self.fail(f"{type(error).__name__}: {error}")
            return Outcome.FAILED_QUIESCED, self._broken
        finally:
            with self._lock:
                self._reading = None
        return (Outcome.FAILED_QUIESCED, refused) if refused else (Outcome.LANDED, "")

    def fail(self, reason: str) -> None:
        with self._lock:
            self._broken = self._broken or reason
        self._stream.hang_up()

    def close(self) -> None:
        self._stream.close()
        self._memory.release()

    def _fetch(self, read: Read) -> str:
        """Ask, place what comes, stamp when all of it is true; or why it is not. Raises OSError, PeerUnusable."""
        self._number += 1
        runs = pack_runs(read.source_pages)
        n_runs = len(runs) // wire.RUN_BYTES
        header = wire.Header(self._number, read.source_tag, len(read.source_pages), n_runs, None)
        self._stream.send([wire.encode_header(header), runs])
        verdict, reason = self._hear()
        if verdict is wire.Verdict.COMING:
            self._place(read)
            verdict, reason = self._hear()
        if verdict is wire.Verdict.LANDED:
            self._pool.stamp(read.target_pages, read.tag)
            return ""
        return reason or "the lender refused it"

    def _hear(self) -> tuple[wire.Verdict, str]:
        number, verdict, n_reason = wire.decode_reply(receive_exactly(self._stream, wire.REPLY_BYTES))
        if number != self._number:
            raise BadFrame(f"an answer to read {number}, not to {self._number}")
        return verdict, receive_exactly(self._stream, n_reason).decode(errors="replace")

    def _place(self, read: Read) -> None:
        spans = self._spans(read.target_pages)
        while spans.left_bytes:
            n = self._stream.take(spans)
            if n is None:
                self._stream.wait()
            elif n == 0:
                raise Hangup(torn=True)
