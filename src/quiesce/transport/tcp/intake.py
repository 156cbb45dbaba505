"""One data connection at the puller: a read goes out as a request, its pages come back straight to their places."""

from __future__ import annotations

import threading
from collections.abc import Callable

from quiesce.errors import BadFrame, PeerUnusable
from quiesce.kv.runs import copy_runs, pack_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.pulling import Read
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.outbound import connect
from quiesce.transport.tcp.sockets import Hangup, piece_of, receive_exactly, skip
from quiesce.trust.contexts import Tls


class Intake:
    """`read` is called from one thread, one read after the other; a connection that broke stays broken.

    That thread alone places bytes. So when `read` returns, nothing of it lands any more, however it ended: what the
    lender or the network still holds meets a connection that nobody reads from.
    """

    def __init__(self, pool: Pool, descriptor: wire.TcpDescriptor, tls: Tls | None = None) -> None:
        """Connect and prove the ticket. Raises PeerUnusable or HandshakeRefused; nothing was read then."""
        self._pool = pool
        self._memory = pool.page_view().reshape(-1).data
        self._number = 0
        self._lock = threading.Lock()
        self._reading: Read | None = None
        self._broken = ""
        self._stream = connect(descriptor, tls, "prefill")

    @property
    def broken(self) -> bool:
        return bool(self._broken)

    @property
    def is_spent(self) -> bool:
        """Whether another connection should take what comes next."""
        return self._stream.is_spent

    def carries(self, read: Read) -> bool:
        """Whether `read` is under way here."""
        with self._lock:
            return self._reading is read

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
            self.fail(f"the connection broke: {error}")
            return Outcome.FAILED_QUIESCED, self._broken
        finally:
            with self._lock:
                self._reading = None
        return (Outcome.FAILED_QUIESCED, refused) if refused else (Outcome.LANDED, "")

    def fail(self, reason: str) -> None:
        """Break the connection, from any thread: a read that is under way ends soon."""
        with self._lock:
            self._broken = self._broken or reason
        self._stream.hang_up()

    def close(self) -> None:
        """By the thread that reads, when none follows."""
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
        views = self._views(read)
        left_bytes, at = sum(map(len, views)), 0
        while left_bytes:
            n = self._stream.take(piece_of(views, at))
            if n == 0:
                raise Hangup(torn=True)
            if n is None:
                self._stream.wait()
                continue
            left_bytes -= n
            at = skip(views, at, n)

    def _views(self, read: Read) -> list[memoryview]:
        page_bytes = self._pool.layout.page_bytes
        runs = copy_runs(read.target_pages, read.target_pages)
        begins, ends = (runs.target * page_bytes).tolist(), ((runs.target + runs.pages) * page_bytes).tolist()
        return [self._memory[begin:end] for begin, end in zip(begins, ends, strict=True)]
