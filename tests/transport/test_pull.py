"""Reads over TCP inside one process: what lands, what is refused, what a revocation proves, and what `close` does."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quiesce.errors import HandshakeRefused, InvariantBroken, UsageError
from quiesce.ids import PageTag
from quiesce.kv.layout import Layout
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.descriptors import decode_descriptor
from quiesce.transport.pulling import Read
from quiesce.transport.refusals import RefusedConnection, RefusedTransfer
from quiesce.transport.tcp import wire
from quiesce.transport.tcp.line import connect
from quiesce.transport.tcp.sockets import PlainStream, receive_exactly
from quiesce.transport.tcp.tls import TlsStream

from .placements import LONG_S, HeldDeparture
from .pools import ANYBODY, SOURCE_PAGES, TAG, TARGET_PAGES
from .pulled import WINDOW, Pulled
from .tcp import both_ways, refusals, trial

LARGE = Layout(layers=8, kv_heads=4, head_dim=64, page_size=16, layer_groups=1)
LARGE_PAGES = list(range(256))
"""More than the kernel's queues hold."""


@pytest.fixture(autouse=True, scope="module", params=["plain", "tls"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """All of it holds on both ways."""
    yield from both_ways(request)


def test_bytes_come_where_they_are_told_and_nowhere_else() -> None:
    with Pulled() as made:
        source, target = [3, 4, 5, 0, 23], [30, 31, 7, 8, 0]
        made.lend([0, 3, 4, 5, 23])
        made.launch(1, source, target)
        (completion,) = made.wait()
        assert (completion.id, completion.outcome) == (1, Outcome.LANDED)
        assert completion.n_bytes == 5 * made.source.layout.page_bytes
        assert made.arrived(source, target)
        assert made.stamped() == sorted(target)
        assert not made.target.metadata.any()


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_any_batch_of_disjoint_reads_lands_as_a_numpy_copy_would(data: st.DataObject, threads: int) -> None:
    targets = data.draw(st.lists(st.integers(0, TARGET_PAGES - 1), unique=True))
    sources = [data.draw(st.integers(0, SOURCE_PAGES - 1)) for _ in targets]
    cut = data.draw(st.integers(0, len(targets)))
    with Pulled(threads=threads) as made:
        made.lend(sources)
        made.launch(1, sources[:cut], targets[:cut])
        made.launch(2, sources[cut:], targets[cut:])
        assert {(end.id, end.outcome) for end in made.wait(2)} == {(1, Outcome.LANDED), (2, Outcome.LANDED)}
        assert made.arrived(sources, targets)
        assert made.stamped() == sorted(targets)


@pytest.mark.parametrize(
    ("pages", "window", "why"),
    [([5, 6], WINDOW, RefusedTransfer.FOREIGN_PAGE), ([5], WINDOW + 1, RefusedTransfer.NOT_LEASED)],
    ids=["a page of nobody", "another window"],
)
def test_what_no_window_lends_is_refused_whole(pages: list[int], window: int, why: RefusedTransfer) -> None:
    """The puller's own check passes these: the lender is the one that knows."""
    with Pulled() as made:
        made.lend([5])
        made.launch(1, pages, pages, window=window)
        made.launch(2, [5], [7])
        refused, landed = made.wait(2)
        assert (refused.outcome, landed.outcome) == (Outcome.FAILED_QUIESCED, Outcome.LANDED)
        assert refused.error == why
        assert refusals(made.lender) == {why: 1}
        assert made.arrived([5], [7])
        assert made.stamped() == [7]


@pytest.mark.parametrize(("source", "target"), [([SOURCE_PAGES], [0]), ([0, 1], [0, TARGET_PAGES]), ([0, 1], [0])])
def test_what_lies_outside_a_pool_is_never_asked_for(source: list[int], target: list[int]) -> None:
    with Pulled() as made:
        made.lend([0])
        made.launch(1, source, target)
        made.launch(2, [0], [0], window=2**64)
        assert [end.outcome for end in made.wait(2)] == [Outcome.FAILED_QUIESCED] * 2
        assert made.arrived([], [])


def test_windows_may_share_pages_and_a_tag_is_lent_once() -> None:
    with Pulled() as made:
        made.lend([1, 2])
        made.lend([2, 3], tag=WINDOW + 1)
        with pytest.raises(InvariantBroken, match="lent_once"):
            made.lend([4])
        assert made.lender.revoke(WINDOW)
        made.launch(1, [2, 3], [2, 3], window=WINDOW + 1)
        made.launch(2, [2], [4])
        assert [end.outcome for end in made.wait(2)] == [Outcome.LANDED, Outcome.FAILED_QUIESCED]
        made.lender.take_back(WINDOW)
        assert made.lender.revoke(WINDOW), "idempotent, in any order"


def test_after_a_revocation_nothing_is_read() -> None:
    departure = HeldDeparture()
    with Pulled(departure=departure) as made:
        made.lend([1, 2])
        made.launch(1, [1, 2], [1, 2])
        assert departure.reached.wait(LONG_S)
        assert made.lender.revoke(WINDOW)
        departure.let_go.set()
        assert [end.outcome for end in made.wait()] == [Outcome.FAILED_QUIESCED]
        assert made.arrived([], [])
        assert made.stamped() == []


@contextlib.contextmanager
def large(**options: float) -> Iterator[Pulled]:
    pages = len(LARGE_PAGES)
    with Pulled(layout=LARGE, source_pages=pages, target_pages=pages, **options) as made:  # type: ignore[arg-type]
        yield made


def test_what_the_source_holds_after_a_revocation_is_never_sent() -> None:
    """The window is revoked in the middle of a read, and the source is used again at once."""
    with large() as made:
        for round_ in range(8):
            tag = PageTag(WINDOW + round_)
            made.source.page_view()[...] = 1
            made.target.page_view()[...] = 0
            made.lend(LARGE_PAGES, tag=tag)
            made.launch(round_, LARGE_PAGES, LARGE_PAGES, window=tag, tag=TAG + round_)
            while not made.target.page_view()[0].any():
                pass
            made.lender.revoke(tag)
            made.source.page_view()[...] = 2
            (end,) = made.wait()
            assert not (made.target.page_view() == 2).any()
            whole = bool((made.target.page_view() == 1).all())
            assert (end.outcome is Outcome.LANDED) <= whole
            assert (made.stamped(TAG + round_) != []) == (end.outcome is Outcome.LANDED)


def test_the_connection_of_a_read_that_was_revoked_serves_the_next_one() -> None:
    with large() as made:
        made.lend(LARGE_PAGES)
        made.launch(1, LARGE_PAGES, LARGE_PAGES)
        while not (made.target.page_view()[0] == made.source.page_view()[0]).all():
            pass
        made.lender.revoke(WINDOW)
        made.lend([3], tag=WINDOW + 1)
        made.launch(2, [3], [4], window=WINDOW + 1)
        assert made.wait(2)[1].outcome is Outcome.LANDED
        assert len(made.lender._connections) == 1
        assert (made.target.page_view()[4] == made.source.page_view()[3]).all()


class Stubborn:
    """A lender that proves itself, answers a read with the first of its pages, and then nothing more."""

    def __init__(self, descriptor: bytes, page_bytes: int) -> None:
        self.described = decode_descriptor(descriptor, wire.TcpDescriptor)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.page_bytes = page_bytes
        self.tls = trial()[1]
        self.sent = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def descriptor(self) -> bytes:
        return msgspec.msgpack.encode(replace(self.described, port=self.listener.getsockname()[1]))

    def _serve(self) -> None:
        sock, _ = self.listener.accept()
        key, mine = self.described.key, os.urandom(wire.CHALLENGE_BYTES)
        stream = PlainStream(sock) if self.tls is None else TlsStream(sock, self.tls, "decode")
        stream.shake_hands(time.monotonic() + LONG_S)
        theirs = receive_exactly(stream, len(wire.MAGIC) + wire.TICKET_BYTES + wire.CHALLENGE_BYTES)[-32:]
        stream.send([mine + wire.proof(key, b"receiver", theirs, mine)])
        receive_exactly(stream, wire.PROOF_BYTES)
        stream.send([wire.MAGIC])
        header = wire.decode_header(receive_exactly(stream, wire.HEADER_BYTES))
        receive_exactly(stream, header.runs * wire.RUN_BYTES)
        stream.send([wire.encode_reply(header.number, wire.Verdict.COMING, "") + b"\x07" * self.page_bytes])
        self.sent.set()
        stream.settimeout(None)
        while sock.recv(1):
            pass
        stream.close()

    def close(self) -> None:
        self.thread.join()
        self.listener.close()


@contextlib.contextmanager
def stubborn(made: Pulled) -> Iterator[Stubborn]:
    other = Stubborn(made.lender.describe(ANYBODY)[0], made.source.layout.page_bytes)
    made.lent = made.puller.open_source(other.descriptor(), [])
    yield other
    other.close()


def test_a_read_whose_time_is_over_ends_quiesced_once_its_thread_is_through() -> None:
    with Pulled(call_deadline_s=0.3) as made, stubborn(made) as lender:
        made.launch(1, [0, 1], [0, 1])
        assert lender.sent.wait(LONG_S)
        (end,) = made.wait()
        assert (end.outcome, end.seconds >= 0.3) == (Outcome.FAILED_QUIESCED, True)
        assert "took too long" in end.error
        assert made.stamped() == []
        assert made.puller.completions() == []


def test_close_does_not_wait_for_a_lender() -> None:
    with Pulled() as made, stubborn(made) as lender:
        made.launch(1, [0, 1], [0, 1])
        made.launch(2, [2], [2])
        assert lender.sent.wait(LONG_S)
        made.puller.close()
        assert {(end.id, end.outcome) for end in made.puller.completions()} == {
            (1, Outcome.FAILED_QUIESCED),
            (2, Outcome.FAILED_QUIESCED),
        }
        made.launch(3, [0], [0])
        assert [end.outcome for end in made.puller.completions()] == [Outcome.FAILED_QUIESCED]


def test_a_lender_that_went_away_fails_its_reads_quiesced() -> None:
    with Pulled() as made:
        made.lend([1])
        made.launch(1, [1], [1])
        assert made.wait()[0].outcome is Outcome.LANDED
        made.lender.close()
        made.launch(2, [1], [2])
        made.launch(3, [1], [3])
        ends = made.wait(2)
        assert [end.outcome for end in ends] == [Outcome.FAILED_QUIESCED] * 2
        assert made.stamped() == [1]


def test_a_peer_that_was_shut_out_reads_nothing_more() -> None:
    with Pulled() as made:
        made.lend([1])
        made.launch(1, [1], [1])
        assert made.wait()[0].outcome is Outcome.LANDED
        made.lender.kill(ANYBODY)
        assert made.lender.is_dead(ANYBODY)
        made.launch(2, [1], [2])
        made.launch(3, [1], [2])
        assert [end.outcome for end in made.wait(2)] == [Outcome.FAILED_QUIESCED] * 2
        assert refusals(made.lender) == {RefusedConnection.FENCED: 1}, "the first finds its connection broken"


def test_who_closes_a_source_begins_nothing_more_there() -> None:
    departure = HeldDeparture()
    with Pulled(departure=departure) as made:
        made.lend([1])
        made.launch(1, [1], [1])
        assert departure.reached.wait(LONG_S)
        made.launch(2, [1], [2])
        made.puller.close_source(made.lent)
        assert [(end.id, end.outcome) for end in made.wait()] == [(2, Outcome.FAILED_QUIESCED)]
        departure.let_go.set()
        assert [(end.id, end.outcome) for end in made.wait()] == [(1, Outcome.LANDED)]


def test_what_is_no_source_of_this_transport_is_a_usage_error() -> None:
    with Pulled() as made:
        pages = np.array([0], np.int32)
        with pytest.raises(UsageError):
            made.puller.launch(made.source, Read(1, pages, WINDOW, pages, TAG))
        with pytest.raises(HandshakeRefused):
            made.puller.open_source(b"nonsense", [])


HEADERS = [
    wire.encode_header(wire.Header(1, WINDOW, SOURCE_PAGES + 1, 1, None)) + b"\0" * wire.RUN_BYTES,
    wire.encode_header(wire.Header(1, WINDOW, 1, 1, 0)) + b"\0\0\0\0\1\0\0\0",
    wire.encode_header(wire.Header(1, WINDOW, 1, 1, None)) + b"\xff\0\0\0\1\0\0\0",
    wire.encode_header(wire.Header(1, WINDOW, 2, 1, None)) + b"\0\0\0\0\1\0\0\0",
    b"\xff" * wire.HEADER_BYTES,
]


@pytest.mark.parametrize("sent", HEADERS, ids=["too many", "a slot", "outside", "other count", "nonsense"])
def test_nonsense_ends_its_connection_and_nothing_else(sent: bytes) -> None:
    with Pulled() as made:
        made.lend([0])
        described = decode_descriptor(made.lender.describe(ANYBODY)[0], wire.TcpDescriptor)
        stream = connect(described, trial()[0], "prefill")
        stream.send([sent])
        with contextlib.suppress(ConnectionResetError):
            assert stream.recv_into(memoryview(bytearray(1))) == 0
        stream.close()
        made.launch(1, [0], [0])
        assert made.wait()[0].outcome is Outcome.LANDED
