"""An error that nobody foresaw fails one write or read: no connection is left open behind it, and no thread is lost."""

from __future__ import annotations

import socket
import threading
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from quiesce.errors import HandshakeRefused
from quiesce.protocol.sender_io import Outcome
from quiesce.transport.departure import Departure
from quiesce.transport.descriptors import decode_descriptor
from quiesce.transport.tcp import line, wire
from quiesce.transport.tcp.intake import Intake
from quiesce.transport.tcp.outbound import Outbound
from quiesce.transport.tcp.receiver import TcpReceiver
from quiesce.transport.tcp.sockets import PlainStream

from .pulled import Pulled
from .relay import relay
from .tcp import PEER, Wired

LANDED, QUIESCED, UNKNOWN = Outcome.LANDED, Outcome.FAILED_QUIESCED, Outcome.FAILED_IN_FLIGHT


class OnceBroken(Departure[Any]):
    """The second that leaves does not."""

    def __init__(self) -> None:
        self.left = 0

    def leave(self, _: object, /) -> None:
        self.left += 1
        if self.left == 2:
            raise RuntimeError("broken before it left")


def once(function: Any, error: Exception) -> Any:
    """`function`, whose first call raises."""
    errors = [error]

    def called(*args: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop()
        return function(*args, **more)

    return called


def outcomes(made: Wired | Pulled, launches: int) -> list[Outcome]:
    """Of one launch after the other."""
    ended = []
    for number in range(launches):
        made.launch(number, [1], [1])
        ended += [end.outcome for end in made.wait()]
    return ended


def pushed(departure: Departure[Any] | None = None) -> Wired:
    made = Wired(departure=departure)
    made.arm([1])
    return made


def pulled(departure: Departure[Any] | None = None) -> Pulled:
    made = Pulled(departure=departure)
    made.lend([1])
    return made


def descriptor_of(made: Wired | Pulled) -> bytes:
    return (made.receiver if isinstance(made, Wired) else made.lender).describe(PEER)[0]


def opened(made: Wired | Pulled, descriptor: bytes) -> Any:
    return (
        made.sender.open_target(descriptor, []) if isinstance(made, Wired) else made.puller.open_source(descriptor, [])
    )


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Every connection that is dialled."""
    made: list[socket.socket] = []
    dial = socket.create_connection

    def noted(*args: Any, **more: Any) -> socket.socket:
        made.append(dial(*args, **more))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", noted)
    return made


@pytest.mark.parametrize("make", [pushed, pulled])
def test_what_does_not_leave_keeps_the_connection(make: Any) -> None:
    with make(OnceBroken()) as made:
        described = decode_descriptor(descriptor_of(made), wire.TcpDescriptor)
        with relay(described.port) as way:
            made.lent = opened(made, msgspec.msgpack.encode(replace(described, port=way.port)))
            assert outcomes(made, 3) == [LANDED, QUIESCED, LANDED]
            assert way.connections == 1
            made.close()


def test_a_connection_without_a_thread_for_its_replies_is_closed(
    connected: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refused = once(start, RuntimeError("can't start new thread"))

    def patched(thread: threading.Thread) -> None:
        (refused if thread.name == "page-replies" else start)(thread)

    monkeypatch.setattr(threading.Thread, "start", patched)
    with pushed() as made:
        assert outcomes(made, 2) == [QUIESCED, LANDED]
        assert [sock.fileno() < 0 for sock in connected] == [True, False]


@pytest.mark.parametrize("make", [pushed, pulled])
def test_a_connection_that_cannot_be_used_is_closed(
    make: Any, connected: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a name under which TLS would ask nobody."""
    with make() as made:
        monkeypatch.setattr(line, "PlainStream", once(PlainStream, ValueError("no name for TLS")))
        assert outcomes(made, 2) == [QUIESCED, LANDED]
        assert [sock.fileno() < 0 for sock in connected] == [True, False]


@pytest.mark.parametrize(("make", "kind", "ended"), [(pushed, Outbound, UNKNOWN), (pulled, Intake, QUIESCED)])
def test_what_breaks_on_the_way_takes_its_connection_with_it_and_the_lane_goes_on(
    make: Any, kind: Any, ended: Outcome, connected: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = kind._spans
    broken = once(spans, RuntimeError("whatever"))
    monkeypatch.setattr(kind, "_spans", lambda *args: broken(*args))
    with make() as made:
        assert outcomes(made, 2) == [ended, LANDED]
        assert [sock.fileno() < 0 for sock in connected] == [True, False]


def test_who_cannot_be_served_is_hung_up_and_the_next_one_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = TcpReceiver._guest
    broken = once(guest, ValueError("whatever"))
    monkeypatch.setattr(TcpReceiver, "_guest", lambda *args: broken(*args))
    with pushed() as made:
        assert outcomes(made, 2) == [QUIESCED, LANDED]


@pytest.mark.parametrize("make", [pushed, pulled])
def test_a_lane_without_its_threads_is_none(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not keep its owner from closing."""
    with make() as made:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", once(None, RuntimeError("can't start new thread")))
            with pytest.raises(HandshakeRefused, match="no thread can be had"):
                opened(made, descriptor_of(made))
        made.mover.close()
