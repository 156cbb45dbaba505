from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from quiesce.control import acceptor, credentials, frames
from quiesce.control.credentials import Credentials
from quiesce.control.restraint import BURST
from quiesce.control.stream import FrameStream, dial, first_frame, listen
from quiesce.errors import ConfigurationError, PeerUnusable

from .connections import Note, decode_note


async def _echo(sock: socket.socket) -> None:
    first = await first_frame(sock, decode_note)
    stream = FrameStream(sock, decode_note, "echo")
    stream.send(first)
    try:
        while (note := await stream.receive()) is not None:
            stream.send(note)
    finally:
        stream.close()


async def _ask(path: Path, *notes: Note) -> list[Note | None]:
    stream = FrameStream(await dial(path, 5), decode_note, "asker")
    for note in notes:
        stream.send(note)
    answers = [await stream.receive() for _ in notes]
    stream.close()
    return answers


async def test_a_connection_is_served(run_dir: Path) -> None:
    server = await listen(run_dir / "a.sock", _echo)
    assert await _ask(run_dir / "a.sock", Note(1), Note(2)) == [Note(1), Note(2)]
    await server.stop()


async def test_socket_and_directory_are_private(run_dir: Path) -> None:
    server = await listen(run_dir / "deep" / "a.sock", _echo)
    assert stat.S_IMODE((run_dir / "deep" / "a.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((run_dir / "deep").stat().st_mode) == 0o700
    await server.stop()
    assert not (run_dir / "deep" / "a.sock").exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
async def test_a_directory_that_others_can_write_is_refused(made_dir: Path, mode: int) -> None:
    os.chmod(made_dir, mode)  # noqa: PTH101 - ruff takes the other for a blocking call
    with pytest.raises(ConfigurationError, match="written by others"):
        await listen(made_dir / "a.sock", _echo)
    assert not (made_dir / "a.sock").exists()


async def test_a_directory_of_another_user_is_refused(made_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: made_dir.stat().st_uid + 1)
    with pytest.raises(ConfigurationError, match="another user"):
        await listen(made_dir / "a.sock", _echo)


async def test_a_stale_socket_file_is_replaced(made_dir: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(made_dir / "a.sock"))
    dead.close()
    server = await listen(made_dir / "a.sock", _echo)
    assert await _ask(made_dir / "a.sock", Note(1)) == [Note(1)]
    await server.stop()


async def test_a_socket_that_is_answered_is_not_replaced(run_dir: Path) -> None:
    server = await listen(run_dir / "a.sock", _echo)
    with pytest.raises(ConfigurationError, match="already listens"):
        await listen(run_dir / "a.sock", _echo)
    assert await _ask(run_dir / "a.sock", Note(1)) == [Note(1)]
    await server.stop()


async def test_a_listener_too_busy_to_answer_is_not_replaced(made_dir: Path) -> None:
    with _full_backlog(made_dir / "a.sock"), pytest.raises(ConfigurationError, match="already listens"):
        await listen(made_dir / "a.sock", _echo)


async def test_a_file_that_is_no_socket_is_left_alone(made_dir: Path) -> None:
    (made_dir / "a.sock").write_text("precious")
    with pytest.raises(ConfigurationError, match="no socket"):
        await listen(made_dir / "a.sock", _echo)
    assert (made_dir / "a.sock").read_text() == "precious"


async def test_a_path_that_cannot_be_used_says_so(run_dir: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot listen"):
        await listen(run_dir / ("x" * 120), _echo)
    (run_dir / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot listen"):
        await listen(run_dir / "file" / "a.sock", _echo)


async def test_close_stops_accepting_and_connections_live_on(run_dir: Path) -> None:
    server = await listen(run_dir / "a.sock", _echo)
    stream = FrameStream(await dial(run_dir / "a.sock", 5), decode_note, "asker")
    stream.send(Note(1))
    assert await stream.receive() == Note(1)
    server.close()
    server.close()
    assert server.closed
    with pytest.raises(PeerUnusable, match="cannot connect"):
        await dial(run_dir / "a.sock", 5)
    stream.send(Note(2))
    assert await stream.receive() == Note(2)
    await server.stop()
    assert await stream.receive() is None
    stream.close()


async def test_closing_leaves_a_successors_socket_file_alone(run_dir: Path) -> None:
    server = await listen(run_dir / "a.sock", _echo)
    (run_dir / "a.sock").unlink()
    successor = await listen(run_dir / "a.sock", _echo)
    server.close()
    assert await _ask(run_dir / "a.sock", Note(1)) == [Note(1)]
    await successor.stop()


async def test_stop_right_after_accepting_leaks_no_socket(run_dir: Path) -> None:
    """The connection's task is cancelled before its first step, and its socket is closed all the same."""
    server = await listen(run_dir / "a.sock", _echo)
    peer = await dial(run_dir / "a.sock", 5)
    server._on_readable()
    await server.stop()
    assert peer.recv(1) == b""
    peer.close()


async def test_a_failing_connection_is_closed_logged_and_hurts_nobody(
    run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(sock: socket.socket) -> None:
        if (await first_frame(sock, decode_note)).serial == 0:
            raise RuntimeError("a bug")
        sock.close()

    server = await listen(run_dir / "a.sock", serve)
    for sent, level in ((frames.encode(Note(0)), logging.ERROR), (frames.prefixed(b"?"), logging.INFO)):
        with caplog.at_level(logging.INFO):
            peer = await dial(run_dir / "a.sock", 5)
            peer.sendall(sent)
            assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
            await asyncio.sleep(0)
        assert caplog.records[-1].levelno == level
        peer.close()
    await server.stop()


async def test_nonsense_again_and_again_fills_no_log(run_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = await listen(run_dir / "a.sock", _echo)
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            peer = await dial(run_dir / "a.sock", 5)
            peer.sendall(frames.prefixed(b"?"))
            assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
            peer.close()
    await server.stop()
    lines = [message for message in caplog.messages if " ended: " in message]
    assert 1 <= len(lines) <= BURST + 4  # a slow machine is allowed a few seconds


async def test_another_user_is_refused_by_the_listener(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await listen(run_dir / "a.sock", _echo)
    peer = await dial(run_dir / "a.sock", 5)
    _pretend_other_user(monkeypatch)
    assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
    peer.close()
    await server.stop()


async def test_another_users_listener_is_refused_by_dial(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await listen(run_dir / "a.sock", _echo)
    _pretend_other_user(monkeypatch)
    with pytest.raises(PeerUnusable, match="belongs to user"):
        await dial(run_dir / "a.sock", 5)
    await server.stop()


async def test_dialling_nobody_fails_at_once(run_dir: Path) -> None:
    with pytest.raises(PeerUnusable, match="cannot connect") as raised:
        await dial(run_dir / "a.sock", 60)
    assert raised.value.took_effect is False


async def test_dialling_without_a_free_descriptor_is_the_peers_error_too(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took no effect, so whoever dials may dial again; an OSError would pass all who expect PeerUnusable."""

    def no_socket(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("quiesce.control.dialing.socket.socket", no_socket)
        with pytest.raises(PeerUnusable, match="Too many open files") as raised:
            await dial(run_dir / "a.sock", 5)
    assert raised.value.took_effect is False
    assert "limit of open files" in raised.value.remedy


async def test_dialling_a_busy_listener_waits_until_it_accepts(made_dir: Path) -> None:
    with _full_backlog(made_dir / "a.sock") as busy:
        dialling = asyncio.create_task(dial(made_dir / "a.sock", 10))
        await asyncio.sleep(0)
        assert not dialling.done()
        accepted, _ = busy.listening.accept()
        accepted.close()
        sock = await dialling
        sock.close()


async def test_dialling_a_busy_listener_ends_by_the_deadline(made_dir: Path) -> None:
    with _full_backlog(made_dir / "a.sock"), pytest.raises(PeerUnusable, match="does not answer"):
        await dial(made_dir / "a.sock", 0.02)


async def test_out_of_descriptors_pauses_and_goes_on(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "_PAUSE_S", 0.01)
    server = await listen(run_dir / "a.sock", _echo)
    server._accept_failed(OSError(errno.EMFILE, "Too many open files"))
    assert await _ask(run_dir / "a.sock", Note(1)) == [Note(1)]
    server._accept_failed(OSError(errno.EMFILE, "Too many open files"))
    await server.stop()  # with the pause still running


def _pretend_other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = Credentials(pid=1, uid=os.geteuid() + 1, gid=0)
    monkeypatch.setattr(credentials, "peer_credentials", lambda sock: stranger)


class _full_backlog:  # noqa: N801 - reads as a function
    """A listener whose backlog of one is taken: the next connect would block."""

    def __init__(self, path: Path) -> None:
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(path))
        self.listening.listen(0)
        self.queued = socket.socket(socket.AF_UNIX)
        self.queued.connect(str(path))

    def __enter__(self) -> _full_backlog:
        return self

    def __exit__(self, *_: object) -> None:
        self.queued.close()
        self.listening.close()
