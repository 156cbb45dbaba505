"""The TCP backend inside one process: what lands, what is refused, and what a revocation proves."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quiesce.errors import HandshakeRefused, InvariantBroken, UsageError
from quiesce.ids import Incarnation, PageTag, Peer
from quiesce.kv.layout import Layout
from quiesce.kv.runs import pack_runs
from quiesce.kv.storage import Pool
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Metadata, Target, Write
from quiesce.transport.descriptors import decode_descriptor
from quiesce.transport.refusals import RefusedConnection, RefusedTransfer
from quiesce.transport.shm import ShmReceiver
from quiesce.transport.tcp import inbound, wire
from quiesce.transport.tcp.leases import Leases
from quiesce.transport.tcp.line import connect
from quiesce.transport.tcp.receiver import MOST_STRANGERS, TcpReceiver
from quiesce.transport.tcp.sender import TcpSender
from quiesce.transport.tcp.sockets import Hangup, PlainStream, Stream, receive_exactly
from quiesce.transport.tcp.tls import TlsStream
from quiesce.trust.contexts import Tls

from .placements import LONG_S, HeldDeparture
from .pools import GUARD, LAYOUT, SLOTS, SOURCE_PAGES, TAG, TARGET_PAGES
from .tcp import PEER, Wired, both_ways, refusals

WORDS = (int(TAG), 5, 3, 12, 2**64 - 1, 0, 0, 0)


@pytest.fixture(autouse=True, scope="module", params=["plain", "tls"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """All of it holds on both ways."""
    yield from both_ways(request)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeoutError(110, "timed out"), "a data connection broke: timed out"),
        (HandshakeRefused("no"), "a data connection was refused: no"),
    ],
)
def test_only_what_was_refused_is_called_so(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: inbound.Inbound) -> None:
        raise error

    monkeypatch.setattr(inbound.Inbound, "_authenticate", fails)
    here, there = socket.socketpair()
    with here, there, caplog.at_level("DEBUG", inbound.__name__):
        pool = Pool.private(LAYOUT, TARGET_PAGES, SLOTS)
        inbound.Inbound(PlainStream(here), pool, Leases(TARGET_PAGES), lambda _: None).run(lambda _: True)
    assert [record.getMessage() for record in caplog.records] == [told]


def test_bytes_go_where_they_are_told_and_nowhere_else() -> None:
    with Wired() as made:
        source, target = [3, 4, 5, 0, 23], [30, 31, 7, 8, 0]
        made.arm([0, 7, 8, 30, 31, 2], slot=2)
        made.launch(1, source, target, Metadata(2, WORDS))
        (completion,) = made.wait()
        assert (completion.id, completion.outcome) == (1, Outcome.LANDED)
        assert completion.n_bytes == 5 * made.source.layout.page_bytes
        assert made.arrived(source, target)
        assert made.stamped() == sorted(target)
        assert made.target.metadata.tolist() == [[0] * 8, [0] * 8, list(WORDS), [0] * 8]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_any_batch_of_disjoint_writes_lands_as_a_numpy_copy_would(data: st.DataObject, threads: int) -> None:
    targets = data.draw(st.lists(st.integers(0, TARGET_PAGES - 1), unique=True))
    sources = [data.draw(st.integers(0, SOURCE_PAGES - 1)) for _ in targets]
    cut = data.draw(st.integers(0, len(targets)))
    with Wired(threads=threads) as made:
        made.arm(targets)
        made.launch(1, sources[:cut], targets[:cut])
        made.launch(2, sources[cut:], targets[cut:])
        assert {(end.id, end.outcome) for end in made.wait(2)} == {(1, Outcome.LANDED), (2, Outcome.LANDED)}
        assert made.arrived(sources, targets)
        assert made.stamped() == sorted(targets)


def test_a_write_of_no_pages_may_carry_metadata() -> None:
    with Wired() as made:
        made.arm([], slot=3)
        made.launch(1, [], [], Metadata(3, WORDS))
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]
        assert tuple(made.target.metadata[3].tolist()) == WORDS


@pytest.mark.parametrize(
    ("pages", "slot", "tag", "why"),
    [
        ([5, 6], None, TAG, RefusedTransfer.FOREIGN_PAGE),
        ([5], 1, TAG, RefusedTransfer.FOREIGN_SLOT),
        ([5], None, TAG + 1, RefusedTransfer.NOT_LEASED),
    ],
    ids=["a page of nobody", "another slot", "another tag"],
)
def test_what_the_lease_does_not_permit_is_refused_whole(
    pages: list[int], slot: int | None, tag: int, why: RefusedTransfer
) -> None:
    """The sender's own check passes all of these: the receiver is the one that knows."""
    with Wired() as made:
        made.arm([5], slot=0)
        words = None if slot is None else Metadata(slot, WORDS)
        made.launch(1, pages, pages, words, tag=tag)
        made.launch(2, [5], [5])
        refused, landed = made.wait(2)
        assert (refused.outcome, landed.outcome) == (Outcome.FAILED_QUIESCED, Outcome.LANDED)
        assert refused.error == why
        assert refusals(made.receiver) == {why: 1}
        assert made.arrived([5], [5])
        assert not made.target.metadata.any()


@pytest.mark.parametrize(("source", "target"), [([SOURCE_PAGES], [0]), ([0, 1], [0, TARGET_PAGES]), ([0, 1], [0])])
def test_what_lies_outside_a_pool_never_leaves(source: list[int], target: list[int]) -> None:
    with Wired() as made:
        made.arm([0])
        made.launch(1, source, target)
        assert [end.outcome for end in made.wait()] == [Outcome.FAILED_QUIESCED]
        assert made.arrived([], [])


def test_after_a_revocation_nothing_of_the_tag_lands() -> None:
    departure = HeldDeparture()
    with Wired(departure=departure) as made:
        made.arm([1, 2])
        made.launch(1, [1, 2], [1, 2])
        assert departure.reached.wait(LONG_S)
        assert made.receiver.revoke(TAG)
        made.arm([1, 2], tag=TAG + 1)
        departure.let_go.set()
        assert [end.outcome for end in made.wait()] == [Outcome.FAILED_QUIESCED]
        assert refusals(made.receiver) == {RefusedTransfer.NOT_LEASED: 1}
        assert made.arrived([], [])


LARGE = Layout(layers=8, kv_heads=4, head_dim=64, page_size=16, layer_groups=1)


def test_a_revocation_stops_a_write_that_is_being_placed() -> None:
    """Part of it is there, and that part does not grow: the image after `revoke` is the last one."""
    pages = list(range(48))
    with Wired(layout=LARGE, source_pages=48, target_pages=48) as made:
        for round_ in range(8):
            tag = PageTag(TAG + round_)
            made.target.page_view()[...] = 0
            made.arm(pages, tag=tag)
            made.launch(round_, pages, pages, tag=tag)
            while not made.target.page_view()[0].any():
                pass
            made.receiver.revoke(tag)
            image = made.target.page_view().tobytes()
            (end,) = made.wait()
            assert made.target.page_view().tobytes() == image
            landed = end.outcome is Outcome.LANDED
            assert landed == bool((made.target.tags == tag).all())
            assert refusals(made.receiver) == ({} if landed else {RefusedTransfer.REVOKED: 1})
            assert not landed or image == made.source.page_view().tobytes()


def test_a_write_whose_time_is_over_before_it_leaves_never_leaves() -> None:
    """Nothing of it has begun, so it ends quiesced, and its source may be used again at once."""
    departure = HeldDeparture()
    with Wired(departure=departure, call_deadline_s=0.2) as made:
        made.arm([1])
        made.launch(1, [1], [1])
        (end,) = made.wait()
        assert end.outcome is Outcome.FAILED_QUIESCED
        departure.let_go.set()
        made.sender.close()
        assert made.arrived([], [])
        assert made.sender.completions() == []


def test_pages_are_armed_for_one_tag_at_a_time() -> None:
    with Wired() as made:
        made.arm([1, 2])
        with pytest.raises(InvariantBroken, match="no_alias"):
            made.arm([2, 3], tag=TAG + 1)
        assert made.receiver.revoke(TAG)
        assert made.receiver.revoke(TAG)
        made.arm([2, 3], tag=TAG + 1)


def test_a_fenced_peer_writes_no_more_and_the_fence_is_told_once() -> None:
    with Wired() as made:
        made.arm([1, 2])
        made.launch(1, [1], [1])
        made.wait()
        assert not made.receiver.is_dead(PEER)
        made.receiver.kill(PEER)
        made.receiver.kill(PEER)
        made.loop.run_until_complete(_turn())
        assert made.dead == [PEER]
        assert made.receiver.is_dead(PEER)
        made.launch(2, [2], [2])
        (end,) = made.wait()
        assert end.outcome is not Outcome.LANDED
        assert refusals(made.receiver) == {RefusedConnection.FENCED: 1}
        assert made.arrived([1], [1])


@pytest.mark.parametrize(("pages", "why"), [(2, RefusedTransfer.FENCED), (TARGET_PAGES + 1, RefusedTransfer.MALFORMED)])
def test_what_ends_with_its_connection_is_counted_too(pages: int, why: RefusedTransfer) -> None:
    """A write of which a part has come when its peer is shut out, and one that cannot be."""
    with Wired() as made:
        made.arm([1, 2])
        stream = connect(made.lent.descriptor, made.tls[1], "decode")
        header = wire.encode_header(wire.Header(1, TAG, pages, 1, None))
        stream.send([header, pack_runs(np.array([1, 2], np.int32)), made.source.page_view()[1].tobytes()])
        if why is RefusedTransfer.FENCED:
            while (made.target.page_view()[1] == GUARD).all():
                pass
        else:
            with contextlib.suppress(OSError, Hangup):
                receive_exactly(stream, wire.REPLY_BYTES)
        made.receiver.kill(PEER)
        assert refusals(made.receiver) == {why: 1}
        stream.close()


async def _turn() -> None:
    """One turn of the loop."""


def test_a_receiver_that_ends_fails_what_is_under_way_and_hangs_nobody() -> None:
    departure = HeldDeparture()
    departure.let_go.set()
    with Wired(departure=departure) as made:
        made.arm([1])
        made.launch(1, [1], [1])
        made.wait()
        made.receiver.close()
        made.launch(2, [1], [1])
        made.launch(3, [1], [1])
        assert all(end.outcome is not Outcome.LANDED for end in made.wait(2))


def test_a_peer_that_stops_reading_runs_into_the_deadline_and_holds_up_nobody_else() -> None:
    """Unknown, not quiesced: what the kernels hold may still land. Another target of the same sender is served."""
    with Wired(call_deadline_s=0.5) as made, _false_receiver(made, _read_and_say_nothing) as target:
        made.sender.launch(target, Write(7, np.array([0], np.int32), np.array([0], np.int32), TAG))
        made.arm([3])
        made.launch(8, [3], [3])
        ends = {end.id: end.outcome for end in made.wait(2)}
        assert ends == {7: Outcome.FAILED_IN_FLIGHT, 8: Outcome.LANDED}


@pytest.mark.parametrize("verdict", [wire.Verdict.LANDED, wire.Verdict.REFUSED])
def test_an_answer_frees_no_page_that_is_still_being_sent(verdict: wire.Verdict) -> None:
    """Else whoever answers too soon and reads on is sent what the next user's request puts there."""

    def answer_at_once(stream: Stream) -> None:
        number = wire.decode_header(receive_exactly(stream, wire.HEADER_BYTES)).number
        stream.send([wire.encode_reply(number, verdict, "")])
        hung_up.wait(LONG_S)

    hung_up, pages = threading.Event(), np.arange(48, dtype=np.int32)
    with (
        Wired(layout=LARGE, source_pages=48, target_pages=48, call_deadline_s=0.5) as made,
        _false_receiver(made, answer_at_once) as target,
    ):
        made.sender.launch(target, Write(7, pages, pages, TAG))
        (end,) = made.wait()
        hung_up.set()
        assert end.outcome is Outcome.FAILED_IN_FLIGHT


@contextlib.contextmanager
def _false_receiver(made: Wired, serve: Callable[[Stream], None]) -> Iterator[Target]:
    """A target of `made`'s sender where `serve` answers, and little is under way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        descriptor = decode_descriptor(made.receiver.describe(PEER)[0], wire.TcpDescriptor)
        serving = threading.Thread(target=_greet, args=(listener, descriptor.key, made.tls[0], serve), daemon=True)
        serving.start()
        false = msgspec.msgpack.encode(replace(descriptor, port=listener.getsockname()[1]))
        yield made.sender.open_target(false, [])
        serving.join()


def _greet(listener: socket.socket, key: bytes, tls: Tls | None, serve: Callable[[Stream], None]) -> None:
    sock, _ = listener.accept()
    stream = PlainStream(sock) if tls is None else TlsStream(sock, tls, "prefill")
    stream.shake_hands(time.monotonic() + LONG_S)
    receive_exactly(stream, len(wire.MAGIC) + wire.TICKET_BYTES)
    theirs, mine = receive_exactly(stream, wire.CHALLENGE_BYTES), bytes(wire.CHALLENGE_BYTES)
    stream.send([mine + wire.proof(key, b"receiver", theirs, mine)])
    receive_exactly(stream, wire.PROOF_BYTES)
    stream.send([wire.MAGIC])
    stream.settimeout(None)
    serve(stream)
    stream.close()


def _read_and_say_nothing(stream: Stream) -> None:
    with contextlib.suppress(OSError):
        while stream.recv_into(memoryview(bytearray(1 << 16))):  # until the sender gives up: it never gets a reply
            pass


# ---------------------------------------------------------------- who may write


def test_a_ticket_is_good_only_for_whom_it_was_given_to() -> None:
    """A description that nobody joined with opens nothing, and neither does a wrong key."""
    with Wired() as made:
        made.arm([1])
        stray, _ = made.receiver.describe(Peer(0, Incarnation("b" * 32)))
        known = decode_descriptor(made.receiver.describe(PEER)[0], wire.TcpDescriptor)
        forged = replace(known, ticket=made.lent.descriptor.ticket, key=b"x" * 32)
        for descriptor in (stray, msgspec.msgpack.encode(forged)):
            sender = TcpSender(made.source, tls=made.tls[1])
            target = sender.open_target(descriptor, [])
            sender.launch(target, Write(1, np.array([1], np.int32), np.array([1], np.int32), TAG))
            assert select.select([sender.completion_fd], [], [], LONG_S)[0], "or it would be closed before it knocks"
            sender.close()
            assert [end.outcome for end in sender.completions()] == [Outcome.FAILED_QUIESCED]
        assert made.arrived([], [])
        assert refusals(made.receiver) == {RefusedConnection.UNPROVED: 1}, "whoever lacks the key hangs up by himself"


@pytest.mark.parametrize("known", [True, False])
def test_who_insists_without_a_proof_is_counted_once(known: bool) -> None:
    with Wired() as made:
        ticket = made.lent.descriptor.ticket if known else bytes(wire.TICKET_BYTES)
        sock = socket.create_connection(("127.0.0.1", made.receiver.port))
        stream = TlsStream(sock, made.tls[1], "decode", "127.0.0.1") if made.tls[1] else PlainStream(sock)
        stream.shake_hands(time.monotonic() + LONG_S)
        stream.send([wire.MAGIC, ticket, bytes(wire.CHALLENGE_BYTES), bytes(wire.PROOF_BYTES)])
        receive_exactly(stream, wire.CHALLENGE_BYTES + wire.PROOF_BYTES)
        with pytest.raises(Hangup):
            receive_exactly(stream, 1)
        assert refusals(made.receiver) == {RefusedConnection.UNPROVED: 1}
        stream.close()


def test_a_life_has_one_ticket_however_often_it_joins() -> None:
    """A handshake that only one side finished is made again; whichever description the writer kept is good."""
    with Wired() as made:
        made.arm([1])
        again = decode_descriptor(made.receiver.describe(PEER)[0], wire.TcpDescriptor)
        assert again == made.lent.descriptor
        other = Peer(0, Incarnation("b" * 32))
        assert decode_descriptor(made.receiver.describe(other)[0], wire.TcpDescriptor).ticket != again.ticket
        made.launch(1, [1], [1])
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]


def test_silent_strangers_keep_no_writer_out() -> None:
    with Wired() as made, contextlib.ExitStack() as crowd:
        for _ in range(MOST_STRANGERS + 8):
            stranger = crowd.enter_context(socket.create_connection(("127.0.0.1", made.receiver.port)))
            stranger.sendall(wire.MAGIC[:3])
        made.arm([1])
        made.launch(1, [1], [1])
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]


def test_strangers_who_knock_and_hang_up_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with Wired() as made:
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", made.receiver.port)) as stranger:
                stranger.sendall(wire.MAGIC[:1])
        made.arm([1])
        made.launch(1, [1], [1])
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]
        made.receiver.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_handshake_that_drips_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "AUTHENTICATE_S", 0.2)
    with Wired() as made, socket.create_connection(("127.0.0.1", made.receiver.port)) as stranger:
        with contextlib.suppress(OSError):
            while True:  # a byte now and then, until it hangs up
                stranger.sendall(b"q")
                stranger.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    if not stranger.recv(1):
                        break
        assert made.arrived([], [])


def test_the_acceptor_outlives_a_moment_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wired() as made:
        begin, failed = made.receiver._begin, threading.Event()

        def fail_once(sock: socket.socket) -> None:
            monkeypatch.setattr(made.receiver, "_begin", begin)
            sock.close()
            failed.set()
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(made.receiver, "_begin", fail_once)
        with socket.create_connection(("127.0.0.1", made.receiver.port)):
            assert failed.wait(LONG_S)
        made.arm([1])
        made.launch(1, [1], [1])
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"", wire.MAGIC, wire.MAGIC + bytes(80)])
def test_strangers_change_nothing(words: bytes) -> None:
    with Wired() as made:
        stranger = socket.create_connection(("127.0.0.1", made.receiver.port))
        with stranger, contextlib.suppress(OSError):  # it may hang up on us at any step
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
        made.arm([1])
        made.launch(1, [1], [1])
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]


@given(st.binary(max_size=wire.HEADER_BYTES * 4))
@settings(max_examples=60, deadline=None)
def test_no_bytes_from_a_writer_place_anything_that_its_lease_does_not_permit(noise: bytes) -> None:
    """After the handshake comes noise in place of a header."""
    with Wired() as made:
        made.arm([1])
        made.launch(1, [1], [1])
        made.wait()
        (line,) = made.sender._lines
        with contextlib.suppress(OSError):  # it hung up already
            line._stream.send([noise])
            assert isinstance(line._stream, PlainStream)
            line._stream._sock.shutdown(socket.SHUT_WR)
        line._replies.join()
        assert made.arrived([1], [1])


def test_descriptors_that_no_receiver_makes_are_refused() -> None:
    source = Pool.private(LAYOUT, 4)
    sender = TcpSender(source)
    target = Pool.private(LARGE, 4, SLOTS)
    receiver = TcpReceiver(target)
    described, _ = receiver.describe(PEER)
    for wrong in (b"", b"\xff", b"x" * 5000, described, described[:-4]):
        with pytest.raises(HandshakeRefused):
            sender.open_target(wrong, [])
    shared = Pool.shared(LAYOUT, 4, SLOTS)
    with pytest.raises(UsageError):
        sender.launch(object(), Write(1, np.zeros(0, np.int32), np.zeros(0, np.int32), TAG))  # type: ignore[arg-type]
    with pytest.raises(HandshakeRefused):
        sender.open_target(*ShmReceiver(shared).describe(PEER))
    sender.close()
    receiver.close()
    for pool in (source, target, shared):
        pool.close()
