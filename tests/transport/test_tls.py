"""Page data inside TLS: who proves nothing writes nothing, nobody on the way reads pages, fences hold as in plain."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
import time
from array import array
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quiesce.errors import HandshakeRefused, PeerUnusable
from quiesce.ids import PageTag
from quiesce.kv.layout import Layout
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.contract import Write
from quiesce.transport.descriptors import decode_descriptor
from quiesce.transport.refusals import RefusedConnection
from quiesce.transport.tcp import inbound, tls, wire
from quiesce.transport.tcp.sender import TcpSender
from quiesce.transport.tcp.spans import Spans
from quiesce.transport.tcp.tls import TlsStream
from quiesce.trust import certificates
from quiesce.trust.certificates import Leaf, make_certificates
from quiesce.trust.contexts import Contexts, Tls
from tests.control.trial import HERE, directory, files

from .pools import SOURCE_PAGES, TAG
from .pulled import Pulled
from .relay import Relay, relay
from .tcp import PEER, Wired, refusals, shown_by

LARGE = Layout(layers=8, kv_heads=4, head_dim=64, page_size=16, layer_groups=1)
LARGE_PAGES = list(range(48))
LONG_S = 30.0


def both() -> tuple[Tls, Tls]:
    return shown_by("decode-0"), shown_by("prefill-0")


def without_certificate() -> Tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return Contexts(context, context)


def old_tls() -> Tls:
    context = without_certificate().dialling
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files("prefill-0")["tls_cert"], files("prefill-0")["tls_key"])
    return Contexts(context, context)


def lasting(role: str, first_day: int, last_day: int) -> Tls:
    """Signed by our CA, valid from so many days after now to so many."""
    name = f"other-time-{role}-{time.monotonic_ns()}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(certificates, "_BACKDATED", datetime.timedelta(days=-first_day))
        make_certificates(directory("ours"), [Leaf(name, f"{role}/{role}-0", HERE)], days=last_day)
    return shown_by(name)


NOT_OUR_CA = r"the other side's certificate is not signed by the CA of this process's --tls-ca: .* \[CERTIFICATE_VERIFY"


# ---------------------------------------------------------------- who may write


@pytest.mark.parametrize(
    ("decode", "prefill", "told"),
    [
        (both, lambda: shown_by("prefill-0", "another CA"), NOT_OUR_CA),
        (lambda: (shown_by("decode-0", "another CA"), both()[1]), None, NOT_OUR_CA),
        (
            both,
            without_certificate,
            r"the other side wants a certificate, and this process showed none: give it .* \[.*CERTIFICATE_REQUIRED\]",
        ),
        (both, lambda: shown_by("decode-1"), "the connection ended"),
        (both, lambda: shown_by("router"), "the connection ended"),
        (lambda: (shown_by("prefill-0"), both()[1]), None, "is for prefill/prefill-0, and not for a decode worker"),
        (
            lambda: (shown_by("elsewhere"), both()[1]),
            None,
            r"not for the host that was dialled: renew it .* \[CERTIFICATE_VERIFY_FAILED: .*not valid for '127.0.0.1'",
        ),
        (
            both,
            lambda: lasting("prefill", -3, -1),
            r"says that this process's certificate has expired: renew --tls-cert here; .* \[.*CERTIFICATE_EXPIRED\]",
        ),
        (
            lambda: (lasting("decode", -3, -1), both()[1]),
            None,
            r"certificate has expired, by this host's clock: renew it there \[CERTIFICATE_VERIFY_FAILED: cert",
        ),
        (
            lambda: (lasting("decode", 1, 2), both()[1]),
            None,
            r"certificate is not valid yet, by this host's clock: set the clock that is wrong \[CERTIFICATE_VERIFY",
        ),
        (both, old_tls, r"no version of TLS in common: Quiesce wants 1.3.* \[.*PROTOCOL_VERSION\]"),
    ],
    ids=[
        *("prefill of another CA", "decode of another CA", "no certificate", "decode writes", "a router writes"),
        *("prefill takes", "another host", "prefill's is over", "decode's is over", "decode's is to come", "TLS 1.2"),
    ],
)
def test_who_cannot_prove_who_it_is_writes_nothing(
    decode: Callable[[], tuple[Tls, Tls]], prefill: Callable[[], Tls] | None, told: str
) -> None:
    ours, theirs = decode()
    with Wired(tls=(ours, prefill() if prefill else theirs)) as made:
        made.arm([1])
        made.launch(1, [1], [1])
        (end,) = made.wait()
        assert end.outcome is Outcome.FAILED_QUIESCED
        with pytest.raises(AssertionError, match=told):
            raise AssertionError(end.error)
        assert made.arrived([], [])


def test_what_is_given_at_once_is_little_however_large_the_run() -> None:
    """A lender gives under the lock of the window: `revoke` waits for it."""
    here, there = socket.socketpair()
    ours, theirs = both()
    with here, there:
        lends, reads = TlsStream(here, theirs, "decode"), TlsStream(there, ours, "prefill", "127.0.0.1")
        shaking = threading.Thread(target=reads.shake_hands, args=(time.monotonic() + LONG_S,))
        shaking.start()
        lends.shake_hands(time.monotonic() + LONG_S)
        shaking.join()
        lends.settimeout(None)
        memory = memoryview(bytearray(64 * tls.CIPHERTEXT_BYTES))
        given = lends.give(Spans(memory, 0, array("Q", [0, len(memory)])))
        assert given is not None
        assert 0 < given <= 2 * tls.CIPHERTEXT_BYTES


def test_decode_says_why_it_refused_somebody(caplog: pytest.LogCaptureFixture) -> None:
    with Wired(tls=(both()[0], shown_by("router"))) as made:
        made.arm([1])
        made.launch(1, [1], [1])
        made.wait()
        made.receiver.close()
        assert refusals(made.receiver) == {RefusedConnection.UNCERTIFIED: 1}
    told = "a data connection was refused: its certificate is for router, and not for a prefill worker"
    assert told in [record.getMessage() for record in caplog.records]


def test_decode_says_that_who_came_does_not_speak_tls(caplog: pytest.LogCaptureFixture) -> None:
    with Wired(tls=both()) as made:
        with socket.create_connection(("127.0.0.1", made.receiver.port)) as stranger:
            stranger.sendall(wire.MAGIC + bytes(wire.TICKET_BYTES + wire.CHALLENGE_BYTES))
            with contextlib.suppress(ConnectionError):
                while stranger.recv(4096):
                    pass
        made.receiver.close()
    told = "a data connection was refused: the other side does not speak TLS: does that port belong to something else, "
    told += "or was the other side started without certificates? [WRONG_VERSION_NUMBER]"
    assert told in [record.getMessage() for record in caplog.records]


def test_nothing_goes_in_plain_because_one_side_wants_it_so() -> None:
    with Wired(tls=both()) as made:
        plain = TcpSender(made.source)
        with pytest.raises(HandshakeRefused, match="has them over TLS, who dials in plain: give both"):
            plain.open_target(made.receiver.describe(PEER)[0], [])
        plain.close()
    with Wired() as made:
        strict = TcpSender(made.source, tls=both()[1])
        with pytest.raises(HandshakeRefused, match="has them in plain, who dials over TLS: give both"):
            strict.open_target(made.receiver.describe(PEER)[0], [])
        strict.close()


def test_a_plain_port_that_is_described_as_a_secure_one_hears_no_page() -> None:
    """And the reverse: whoever changes that word on the way gets no page either."""
    for port_is_secure in (True, False):
        with Wired(tls=both() if port_is_secure else None) as made:
            described = decode_descriptor(made.receiver.describe(PEER)[0], wire.TcpDescriptor)
            sender = TcpSender(made.source, tls=None if port_is_secure else both()[1])
            target = sender.open_target(msgspec.msgpack.encode(replace(described, tls=not port_is_secure)), [])
            made.arm([1])
            sender.launch(target, Write(1, np.array([1], np.int32), np.array([1], np.int32), TAG))
            sender.close_target(target)
            sender.close()
            assert [end.outcome for end in sender.completions()] == [Outcome.FAILED_QUIESCED]
            assert made.arrived([], [])


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=400) | st.binary(max_size=64).map(lambda tail: b"\x16\x03\x01\x02\x00\x01" + tail))
def test_noise_at_the_port_changes_nothing(noise: bytes) -> None:
    with Wired(tls=both()) as made:
        with socket.create_connection(("127.0.0.1", made.receiver.port)) as stranger, contextlib.suppress(OSError):
            stranger.sendall(noise)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
        made.arm([1])
        made.launch(1, [1], [1])
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]
        assert made.arrived([1], [1])


def client_hello() -> bytes:
    begun = ssl.MemoryBIO()
    hello = shown_by("prefill-0").dialling.wrap_bio(ssl.MemoryBIO(), begun, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    return begun.read()


def test_a_handshake_that_drips_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is for all of it: certificate and ticket."""
    monkeypatch.setattr(inbound, "AUTHENTICATE_S", 0.2)
    with Wired(tls=both()) as made, socket.create_connection(("127.0.0.1", made.receiver.port)) as stranger:
        hello, ended = client_hello(), False
        for byte in hello[:-1]:
            stranger.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                stranger.sendall(bytes([byte]))
                ended = not stranger.recv(1)
            if ended:
                break
        assert ended


def test_who_has_a_certificate_and_no_ticket_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "AUTHENTICATE_S", 0.5)
    with Wired(tls=both()) as made, socket.create_connection(("127.0.0.1", made.receiver.port)) as sock:
        stream = TlsStream(sock, both()[1], "decode", "127.0.0.1")
        stream.shake_hands(time.monotonic() + LONG_S)
        stream.settimeout(LONG_S)
        assert stream.recv_into(memoryview(bytearray(1))) == 0


def test_a_dialler_waits_for_a_handshake_so_long_and_no_longer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_connection(silent.getsockname()) as sock:
        stream = TlsStream(sock, both()[1], "decode", "127.0.0.1")
        with pytest.raises(TimeoutError):
            stream.shake_hands(time.monotonic() + 0.1)
    with socket.create_server(("127.0.0.1", 0)) as gone, socket.create_connection(gone.getsockname()) as sock:
        gone.accept()[0].close()
        with pytest.raises((PeerUnusable, OSError)):
            TlsStream(sock, both()[1], "decode", "127.0.0.1").shake_hands(time.monotonic() + LONG_S)


@pytest.mark.parametrize(
    ("lender", "puller", "told"),
    [("prefill-0", "prefill-0", "the connection ended"), ("decode-0", "decode-0", "and not for a prefill worker")],
    ids=["prefill reads", "decode lends"],
)
def test_where_decode_reads_the_roles_are_the_other_way_round(lender: str, puller: str, told: str) -> None:
    with Pulled(tls=(shown_by(puller), shown_by(lender))) as made:
        made.lend([1])
        made.launch(1, [1], [1])
        (end,) = made.wait()
        assert end.outcome is Outcome.FAILED_QUIESCED
        assert told in end.error
        assert made.arrived([], [])


# ---------------------------------------------------------------- on the way


def through(made: Wired, port: int) -> None:
    """Have what is launched from now on pass a relay."""
    described = decode_descriptor(made.receiver.describe(PEER)[0], wire.TcpDescriptor)
    made.lent = made.sender.open_target(msgspec.msgpack.encode(replace(described, port=port)), [])


def seen(made: Wired, recorded: bytes) -> int:
    """How many of the source's pages have 16 bytes of theirs in what was recorded."""
    pages = made.source.page_view().reshape(SOURCE_PAGES, -1)
    return sum(any(page[at : at + 16].tobytes() in recorded for at in range(0, len(page), 16)) for page in pages)


@pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])
def test_nobody_on_the_way_reads_a_page(secure: bool) -> None:
    every = list(range(SOURCE_PAGES))
    with Wired(tls=both() if secure else None) as made, relay(made.receiver.port) as way:
        through(made, way.port)
        made.arm(every)
        made.launch(1, every, every)
        assert [end.outcome for end in made.wait()] == [Outcome.LANDED]
        assert made.arrived(every, every)
        assert len(way.recorded) > made.source.page_view().nbytes
        assert seen(made, bytes(way.recorded)) == (0 if secure else SOURCE_PAGES)
        assert (wire.MAGIC in way.recorded) is not secure


def held_midway(made: Wired, way: Relay) -> None:
    """A write of which a part has come, its last record torn, and the rest waits."""
    through(made, way.port)
    made.arm([0], tag=TAG + 1)
    made.launch(0, [0], [0], tag=TAG + 1)
    made.wait()
    made.receiver.revoke(PageTag(TAG + 1))
    made.target.page_view()[...] = 0
    way.stop_after(tls.RECORD_BYTES * 20 + 777)
    made.arm(LARGE_PAGES)
    made.launch(1, LARGE_PAGES, LARGE_PAGES)
    way.passed()
    while not made.target.page_view()[0].any():
        pass


def test_a_revocation_waits_for_no_torn_record_and_nothing_lands_after_it() -> None:
    with (
        Wired(tls=both(), layout=LARGE, source_pages=48, target_pages=48) as made,
        relay(made.receiver.port) as way,
    ):
        held_midway(made, way)
        assert made.receiver.revoke(TAG)
        image = made.target.page_view().tobytes()
        way.let_go()
        (end,) = made.wait()
        assert end.outcome is Outcome.FAILED_QUIESCED
        assert made.target.page_view().tobytes() == image
        assert not made.target.tags[made.target.tags == TAG].size
        made.arm(LARGE_PAGES, tag=TAG + 2)  # the connection is in step
        made.launch(2, LARGE_PAGES, LARGE_PAGES, tag=TAG + 2)
        assert [each.outcome for each in made.wait()] == [Outcome.LANDED]
        assert made.arrived(LARGE_PAGES, LARGE_PAGES)


def test_a_fence_of_a_peer_ends_a_thread_that_waits_inside_a_record() -> None:
    with (
        Wired(tls=both(), layout=LARGE, source_pages=48, target_pages=48) as made,
        relay(made.receiver.port) as way,
    ):
        held_midway(made, way)
        made.receiver.kill(PEER)
        image = made.target.page_view().tobytes()
        way.let_go()
        (end,) = made.wait()
        assert end.outcome is Outcome.FAILED_IN_FLIGHT
        assert made.target.page_view().tobytes() == image


def test_a_deadline_ends_a_write_whose_ciphertext_nobody_takes() -> None:
    with (
        Wired(tls=both(), layout=LARGE, source_pages=48, target_pages=48, call_deadline_s=1.0) as made,
        relay(made.receiver.port) as way,
    ):
        held_midway(made, way)
        assert [end.outcome for end in made.wait()] == [Outcome.FAILED_IN_FLIGHT]
        made.sender.close()  # joins the thread that sent


def test_a_key_encrypts_so_much_and_then_another_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "MOST_BYTES", 10_000)
    with Wired(tls=both()) as made, relay(made.receiver.port) as way:
        through(made, way.port)
        made.arm(list(range(8)))
        for id_ in range(64):
            made.launch(id_, [id_ % 8], [id_ % 8])
        assert {end.outcome for end in made.wait(64)} == {Outcome.LANDED}
        assert 2 <= way.connections <= 8


def test_small_buffers_are_joined_and_large_ones_are_not_copied() -> None:
    large = memoryview(bytearray(tls.RECORD_BYTES))
    pieces = list(tls._pieces([b"a", b"b", large, b"c", b"", b"d" * tls.RECORD_BYTES, b"e"]))
    assert [bytes(each[:2]) for each in pieces] == [b"ab", bytes(2), b"c", b"dd", b"e"]
    assert pieces[1].obj is large.obj
    assert sum(map(len, tls._pieces([b"x" * 1000] * 100))) == 100_000
