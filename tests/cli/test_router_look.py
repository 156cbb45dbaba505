"""`quiesce inspect --router`: whom a router does not use, in words."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest

from quiesce.api.responses import Objection, Partner, Serving, Status
from quiesce.cli.main import main
from quiesce.cli.router_look import KEY

WHEN = "2026-05-04T10:11:12Z"
LATER = "2026-05-04T11:12:13Z"
SERVING = (
    Serving("decode-1", WHEN, "tcp+tls", (Partner("prefill-0", WHEN), Partner("prefill-1", LATER))),
    Serving("worker-0", WHEN),
)
UNUSED = (Objection("prefill-3", "does not answer"),)
REFUSED = (
    Objection("prefill-9", "model differs", since=WHEN),
    Objection("decode-0", "protocol version differs", peer="prefill-2", since=WHEN),
)


@contextmanager
def router(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(f"{self.path} {self.headers.get('Authorization')}")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", keys
        thread.join()


def test_who_is_refused_and_who_is_not_paired_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "look-at-me")
    with router(200, msgspec.json.encode(Status("ready", refused=REFUSED, serving=SERVING, unused=UNUSED))) as (
        url,
        keys,
    ):
        assert main(["inspect", "--router", url]) == 0
    assert keys == ["/readiness?pairs Bearer look-at-me"]
    assert capsys.readouterr().out.splitlines() == [
        f"{url}: ready",
        f"decode-1 is paired over tcp+tls with prefill-0 since {WHEN}, prefill-1 since {LATER}",
        f"worker-0 serves alone since {WHEN}",
        "prefill-3 is not used: does not answer",
        f"prefill-9 is refused since {WHEN}: model differs",
        f"decode-0 is not paired with prefill-2 since {WHEN}: protocol version differs",
    ]


def test_of_a_large_fleet_it_is_said_how_much_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    some = Serving("decode-0", WHEN, "shm", (Partner("prefill-0", WHEN),), more_peers=9)
    with router(200, msgspec.json.encode(Status("ready", serving=(some,), more_serving=5))) as (url, _):
        assert main(["inspect", "--router", url]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"decode-0 is paired over shm with prefill-0 since {WHEN}, 9 more prefill workers",
        "and 5 more workers serve",
    ]


def test_who_serves_may_be_kept_too(capsys: pytest.CaptureFixture[str]) -> None:
    """As /readiness answers who bears no admin key."""
    with router(200, msgspec.json.encode(Status("ready"))) as (url, _):
        assert main(["inspect", "--router", url]) == 0
    assert f"set {KEY} to it" in capsys.readouterr().out.splitlines()[1]


def test_json_is_ascii_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status(
        "ready", refused=(Objection("p\x1b\x7f\x9b1A", "\u202e\u2028 \U0001f600 \\x9b é :bomb:", since=WHEN),)
    )
    with router(200, msgspec.json.encode(status)) as (url, _):
        assert main(["inspect", "--router", url, "--json"]) == 0
    said = capsys.readouterr().out
    assert said.isascii()
    assert said.rstrip("\n").isprintable()
    assert msgspec.json.decode(said, type=Status) == status


def test_what_a_terminal_would_obey_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = Objection("p\x1b[2J", "model differs: \r\n\x9b1A", peer="d\u202e", since=WHEN)
    used = Serving("w\x1b[2J", WHEN, "\x9b1A", (Partner("d\u202e", "\r"),))
    said = msgspec.json.encode(Status("not ready", "\x1b]0;owned\x07", refused=(hostile,), serving=(used,)))
    with router(503, said) as (url, _):
        main(["inspect", "--router", url])
    assert capsys.readouterr().out.splitlines() == [
        f"{url}: not ready: \\x1b]0;owned\\x07",
        "w\\x1b[2J is paired over \\x9b1A with d\\u202e since \\r",
        f"p\\x1b[2J is not paired with d\\u202e since {WHEN}: model differs: \\r\\n\\x9b1A",
    ]


def test_a_router_that_is_not_ready_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    said = msgspec.json.encode(Status("not ready", "no worker is known"))
    with router(503, said) as (url, _):
        assert main(["inspect", "--router", url]) == 1
    assert capsys.readouterr().out == f"{url}: not ready: no worker is known\n"
    with router(503, said) as (url, _):
        assert main(["inspect", "--router", url, "--json"]) == 1
    assert msgspec.json.decode(capsys.readouterr().out) == {"status": "not ready", "reason": "no worker is known"}


def test_a_router_that_keeps_its_reason_says_who_is_told_it(capsys: pytest.CaptureFixture[str]) -> None:
    """As /readiness answers who bears no admin key, or a wrong one."""
    with router(503, msgspec.json.encode(Status("not ready"))) as (url, _):
        assert main(["inspect", "--router", url]) == 1
    said = capsys.readouterr().out
    assert said == f"{url}: not ready: the reason is told to who bears the router's admin key: set {KEY} to it\n"


@pytest.mark.parametrize("flag", ["--bundle", "--run-dir"])
def test_what_a_router_cannot_be_asked_is_a_usage_error(
    flag: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "b.tar.gz"
    assert main(["inspect", "--router", "http://127.0.0.1:1", flag, str(target)]) == 2
    assert f"{flag} " in capsys.readouterr().err
    assert not target.exists()


def test_a_router_that_does_not_run_is_said_in_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        port = idle.getsockname()[1]
        assert main(["inspect", "--router", f"http://127.0.0.1:{port}"]) == 4
    assert "Connection refused. Is it a router's" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "body"), [(404, b"{}"), (200, b"<html>"), (200, b"[" * (2 << 20))])
def test_what_is_no_router_of_ours_is_said(status: int, body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with router(status, body) as (url, _):
        assert main(["inspect", "--router", url]) == 4
    assert "Is it a router's" in capsys.readouterr().err


def test_an_address_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--router", "http://user:word@10.0.0.1:8000"]) == 2
    assert KEY in capsys.readouterr().err
