"""A child for the supervisor: calls the roll, then behaves as told. Not a test; run as a program.

`fake_process.py ROLL BEHAVIOUR ROLE [--name N] [--config FILE] [--parent-fd FD]`. It connects to the Unix socket ROLL
and says who it is; the end of that connection is the end of this process. BEHAVIOUR: steady (SIGTERM ends it with 0),
stubborn (SIGTERM is ignored), late:S (SIGTERM ends it after S seconds), asked-twice (the second SIGTERM ends it, and it
says "hurried"), crash:N (exit code N as soon as ROLL sends a byte), refuse:N (exit code N at once),
complain:N (the same, after an error on stderr). With the role "spare" it waits for the words of another role first.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import socket
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

from quiesce.cli.parent import stop_with_parent
from quiesce.cli.waiting_spare import waiting_at
from quiesce.control.frames import encode
from quiesce.protocol.dispatch import Inspected, Load, PageRange, RoomView, Welcome, WorkerSnapshot

LIFE = "ab" * 16


def main() -> None:
    words = _words(sys.argv[1:])
    settings = tomllib.loads(Path(words.config).read_text()) if words.config else {}
    roll = socket.socket(socket.AF_UNIX)
    roll.connect(words.roll)
    name = words.name or (Path(words.config).stem if words.config else words.role)
    me = {"name": name, "pid": os.getpid(), "settings": settings, "environ": dict(os.environ)}
    roll.sendall(json.dumps(me).encode() + b"\n")
    if words.role == "spare":
        with waiting_at(settings.get("waits-at", "")):
            roll.sendall(b"up\n")
            if not (line := sys.stdin.readline()):
                os._exit(0)
        words = _words([words.roll, words.behaviour, *json.loads(line)])
        settings = tomllib.loads(Path(words.config).read_text()) if words.config else {}
        roll.sendall(json.dumps(me | {"name": words.name or words.role, "settings": settings}).encode() + b"\n")
    behaviour, _, code = words.behaviour.partition(":")
    if behaviour == "complain":
        print(f"quiesce: this cannot be\nts=0 a line of its own: {me['name']}", file=sys.stderr)
    if behaviour in ("refuse", "complain"):
        sys.exit(int(code))
    signal.signal(signal.SIGTERM, _at_sigterm(roll, behaviour, code))
    if words.parent_fd is not None:
        stop_with_parent(words.parent_fd, 0.0)
    _serve(words.role, words.name, settings)
    roll.sendall(b"up\n")
    roll.recv(1)
    os._exit(int(code or 0))


def _at_sigterm(roll: socket.socket, behaviour: str, code: str) -> Callable[..., None] | signal.Handlers:
    times = iter((1, 2))

    def late(*_: object) -> None:
        threading.Timer(float(code), os._exit, [0]).start()

    def twice(*_: object) -> None:
        if next(times) == 2:
            roll.sendall(b"hurried\n")
            os._exit(0)

    ways: dict[str, Callable[..., None] | signal.Handlers] = {
        "stubborn": signal.SIG_IGN,
        "late": late,
        "asked-twice": twice,
    }
    return ways.get(behaviour, lambda *_: os._exit(0))


def _words(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("roll", "behaviour", "role"):
        parser.add_argument(name)
    parser.add_argument("--name")
    parser.add_argument("--config")
    parser.add_argument("--parent-fd", type=int)
    return parser.parse_args(argv)


def _serve(role: str, name: str, settings: dict[str, object]) -> None:
    if role == "router" and "port" in settings:
        server = http.server.ThreadingHTTPServer((str(settings["host"]), int(str(settings["port"]))), Ready)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    elif "listen" in settings:
        listener = socket.socket(socket.AF_UNIX)
        path = Path(str(settings["listen"]).removeprefix("unix:"))
        path.unlink(missing_ok=True)  # of an earlier life
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=_accept, args=(listener, role, name), daemon=True).start()


class Ready(http.server.BaseHTTPRequestHandler):
    """Always ready."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _accept(listener: socket.socket, role: str, name: str) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, role, name), daemon=True).start()


def _answer(connection: socket.socket, role: str, name: str) -> None:
    """Welcome after Attach, then an answer for each further frame, with rising serials as `quiesce inspect` asks."""
    stream = connection.makefile("rb")
    serial = 0
    while header := stream.read(4):
        stream.read(int.from_bytes(header, "big"))
        if serial == 0:
            connection.sendall(encode(welcome(role, name)) + encode(Load(0, 0, 1024)))
        else:
            connection.sendall(encode(Inspected(serial, snapshot(role, name))))
        serial += 1


def welcome(role: str, name: str) -> Welcome:
    return Welcome(
        worker=name,
        role=role,
        incarnation=LIFE,  # type: ignore[arg-type]
        model="fake-model",
        model_fingerprint="feedfacefeedface",
        context_length=2048,
        pool_tokens=4096,
        page_size=16,
        max_queue=7,
        facts=(("dtype", "float32"), ("threads", "1")),
    )


def snapshot(role: str, name: str) -> WorkerSnapshot:
    return WorkerSnapshot(
        worker=name,
        role=role,
        incarnation=LIFE,  # type: ignore[arg-type]
        pages={"free": 225, "used": 0, "cached": 0, "reserved": 0, "held": 31, "quarantined": 0},
        page_size=16,
        ranges=(PageRange(14, 44, "held", "req-1"), PageRange(45, 255, "free")),
        rooms=(RoomView("req-1", 7, "holding", 31, 2.5, ("drained by 0@abcdef01",)),),
        running=0,
        waiting=1,
    )


if __name__ == "__main__":
    main()
