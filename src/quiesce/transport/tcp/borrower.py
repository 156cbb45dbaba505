"""One data connection at the lender: prove who is there, then send the pages that each read may have."""

from __future__ import annotations

from quiesce.errors import BadFrame
from quiesce.kv.runs import expand
from quiesce.kv.storage import Pool
from quiesce.transport.refusals import RefusedTransfer
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.inbound import Guest, KeyOf, Runs
from quiesce.transport.tcp.sockets import Hangup, Stream, receive_exactly
from quiesce.transport.tcp.windows import Window, Windows

_ZEROS = memoryview(bytes(1 << 16))


class Borrower(Guest):
    """Serves the reads of one connection one after the other, straight from the pages.

    Before each piece it looks whether the window is still open. A piece is copied before the call returns, so
    nothing is read of a page once its window is revoked, and what is on the way by then is what the page held before.
    Sending without that copy, as MSG_ZEROCOPY does, would make `revoke` a lie.
    """

    def __init__(self, stream: Stream, pool: Pool, windows: Windows, key_of: KeyOf) -> None:
        super().__init__(stream, pool, key_of)
        self._windows = windows

    def _serve(self) -> None:
        header = wire.decode_header(receive_exactly(self._stream, wire.HEADER_BYTES))
        if header.slot is not None:
            raise BadFrame("a read that names a metadata slot")
        runs = self._read_runs(header.runs, header.pages)
        window = self._windows.find(header.tag, expand(runs[:, 0], runs[:, 1]))
        if isinstance(window, RefusedTransfer):
            self._refuse(header, window)
            return
        self._answer(header, wire.Verdict.COMING)
        if self._send(window, runs):
            self._answer(header, wire.Verdict.LANDED)
        else:
            self._refuse(header, RefusedTransfer.REVOKED)

    def _refuse(self, header: wire.Header, why: RefusedTransfer) -> None:
        self.refusals.count(why)
        self._answer(header, wire.Verdict.REFUSED, why)

    def _answer(self, header: wire.Header, verdict: wire.Verdict, reason: str = "") -> None:
        self._stream.send([wire.encode_reply(header.number, verdict, reason)])

    def _send(self, window: Window, runs: Runs) -> bool:
        """Send all pages of `runs`; False when the window was revoked, zeros go in the place of the rest then."""
        spans = self._spans(runs)
        while spans.left_bytes:
            with window.lock:
                if window.revoked:
                    break
                if self._closed:
                    raise Hangup(torn=True)
                n = self._stream.give(spans)
            if n is None:
                self._stream.wait_for_room()
        self._fill(spans.left_bytes)
        return not spans.left_bytes

    def _fill(self, n_bytes: int) -> None:
        """The reader waits for so many bytes more; it is told afterwards that they are nothing."""
        while n_bytes:
            n = min(n_bytes, len(_ZEROS))
            self._stream.send([_ZEROS[:n]])
            n_bytes -= n
