"""A run directory is private, found while its server lives, swept when it does not."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from quiesce.cli import run_directory as module
from quiesce.cli.run_directory import run_directory, server_line, serving_directory, worker_sockets
from quiesce.errors import MachineLacksError, UsageError


@pytest.fixture
def base(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_LONGEST_PATH_BYTES", 200)
    return tmp_path_factory.mktemp("b")


def test_it_is_private_and_gone_at_the_end(base: Path) -> None:
    with run_directory(base) as path:
        assert path == base / f"quiesce-{os.getpid()}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert not path.exists()


def test_two_of_one_process_do_not_collide(base: Path) -> None:
    with run_directory(base) as first, run_directory(base) as second:
        assert first != second
        assert first.exists()


def serve_in(path: Path, port: int) -> socket.socket:
    (path / "router.toml").write_text(f'host = "127.0.0.1"\nport = {port}\nmodel = "tiny"\n')
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path / "decode-0.sock"))
    return listener


def test_the_only_living_one_is_found_and_named(base: Path) -> None:
    with run_directory(base) as path, serve_in(path, 8123):
        left = base / "quiesce-1"
        left.mkdir(mode=0o700)
        (left / "lock").touch()
        assert serving_directory(None, base) == path
        assert server_line(path) == f"{path} (http://127.0.0.1:8123, model tiny)"
    with pytest.raises(UsageError, match=r"quiesce serve.*or ask a router: `quiesce inspect --router URL`"):
        serving_directory(None, base)


def test_several_living_ones_are_listed_and_none_is_chosen(base: Path) -> None:
    with run_directory(base) as first, run_directory(base) as second, serve_in(first, 1), serve_in(second, 2):
        with pytest.raises(UsageError) as raised:
            serving_directory(None, base)
        assert serving_directory(first, base) == first
        for path, port in ((first, 1), (second, 2)):
            assert f"\n  --run-dir {path} (http://127.0.0.1:{port}, model tiny)" in str(raised.value)


def test_what_a_killed_server_left_is_swept(base: Path) -> None:
    left = base / "quiesce-1"
    left.mkdir(mode=0o700)
    (left / "lock").touch()
    with run_directory(base):
        assert not left.exists()


def test_directories_that_are_not_ours_are_let_be(base: Path) -> None:
    open_to_all = base / "quiesce-open"
    open_to_all.mkdir(mode=0o755)
    (open_to_all / "lock").touch()
    unfinished = base / "quiesce-unfinished"
    unfinished.mkdir(mode=0o700)
    with run_directory(base):
        assert open_to_all.exists()
        assert unfinished.exists()


def test_a_base_that_cannot_be_used_is_the_machines_fault(base: Path) -> None:
    with pytest.raises(MachineLacksError, match="XDG_RUNTIME_DIR"), run_directory(base / "missing"):
        pass


def test_a_path_too_long_for_sockets_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PATH_BYTES", 10)
    with pytest.raises(MachineLacksError, match="too long"), run_directory(base):
        pass


def test_only_sockets_are_workers(base: Path) -> None:
    (base / "no.sock").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(base / "decode-0.sock"))
        assert worker_sockets(base) == [base / "decode-0.sock"]
