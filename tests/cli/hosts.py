"""Hosts for a test: addresses of this machine's loopback, or network namespaces joined by a cable."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from quiesce.cli.port import free_port
from tests.control.trial import files

IP = shutil.which("ip") or "ip"
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
NOBODY = "02:00:00:00:00:99"
SETTLE_S = 150.0
"""How long a server of three processes may take to begin on a machine that is busy."""
_numbers = itertools.count()

_ASK = """
import http.client, json, sys, time
host, port, seconds, path, body = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5]
until_s, said = time.monotonic() + seconds, "nothing"
while time.monotonic() < until_s:
    try:
        connection = http.client.HTTPConnection(host, port, timeout=10)
        connection.request("POST" if body else "GET", path, body or None, {"content-type": "application/json"})
        answer = connection.getresponse()
        said = answer.read().decode()
        if answer.status == int(sys.argv[6]):
            print(said)
            sys.exit(0)
    except (OSError, http.client.HTTPException) as error:
        said = repr(error)
    time.sleep(0.05)
sys.exit(f"{path}: {said}")
"""


_LOAD = """
import http.client, json, sys, threading, time
host, port, path, body, clients = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
over, lines = threading.Event(), threading.Lock()
def ask():
    began_s = time.monotonic()
    try:
        connection = http.client.HTTPConnection(host, port, timeout=100)
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), time.monotonic() - began_s
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error), time.monotonic() - began_s
def client():
    while not over.is_set():
        line = json.dumps(ask()) + chr(10)
        with lines:
            sys.stdout.write(line)
            sys.stdout.flush()
        over.wait(0.1)
threads = [threading.Thread(target=client) for _ in range(clients)]
for thread in threads: thread.start()
sys.stdin.read()
over.set()
for thread in threads: thread.join()
"""


class Load:
    """Clients on a host, each of which asks one request after the other. `answers` are (status, body, seconds)."""

    def __init__(self, host: Host, port: int, path: str, body: str, clients: int) -> None:
        self._words = [*host.prefix, sys.executable, "-c", _LOAD, host.address, str(port), path, body, str(clients)]
        self.answers: list[tuple[int, str, float]] = []
        self._news = threading.Condition()

    def __enter__(self) -> Load:
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            status, body, seconds = json.loads(line)
            with self._news:
                self.answers.append((status, body, seconds))
                self._news.notify_all()

    def more(self, count: int) -> None:
        """Wait for so many answers more."""
        with self._news:
            wanted = len(self.answers) + count
            assert self._news.wait_for(lambda: len(self.answers) >= wanted, SETTLE_S), self.answers[-5:]

    def __exit__(self, *_: object) -> None:
        """What was asked is still answered."""
        self._process.communicate()
        self._reader.join()


class Host:
    """An address, and how a program is run there."""

    def __init__(self, address: str, prefix: Sequence[str] = ()) -> None:
        self.address = address
        self.prefix = tuple(prefix)

    def free_port(self) -> int:
        if self.prefix:  # nobody else is there
            return 9000 + next(_numbers)
        return free_port(self.address, 0)

    def ask(self, port: int, path: str, body: str = "", status: int = 200) -> str:
        """What the server on this host answers as soon as it answers with `status`."""
        told = (self.address, port, SETTLE_S, path, body, status)
        words = [*self.prefix, sys.executable, "-c", _ASK, *map(str, told)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SETTLE_S + 30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Cable:
    """What joins two namespaces. `cut` loses every packet both ways, and tells nobody."""

    def __init__(self, name: str) -> None:
        self._name = name

    def deafen(self) -> None:
        """Lose, silently, what the second host sends to the first: it goes to a card that nobody has."""
        _ip(
            "-n",
            f"{self._name}-b",
            "neigh",
            "replace",
            "10.77.0.1",
            "lladdr",
            NOBODY,
            "dev",
            "veth0",
            "nud",
            "permanent",
        )

    def hear(self) -> None:
        _ip("-n", f"{self._name}-b", "neigh", "del", "10.77.0.1", "dev", "veth0")

    def reboot(self) -> None:
        """The second host's kernel forgets everything; its processes must be dead. Nobody is told."""
        _ip("netns", "del", f"{self._name}-b")
        subprocess.run([IP, "-n", f"{self._name}-a", "link", "del", "veth0"], capture_output=True, check=False)
        _ip("netns", "add", f"{self._name}-b")
        _join(self._name)

    def why_not_slow(self) -> str:
        """Let both ways carry a megabit a second from now on; why this kernel cannot, or ""."""
        for side in "ab":
            told = (
                "qdisc",
                "replace",
                "dev",
                "veth0",
                "root",
                "tbf",
                "rate",
                "1mbit",
                "burst",
                "16kb",
                "latency",
                "1s",
            )
            words = [IP, "netns", "exec", f"{self._name}-{side}", "tc", *told]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"links cannot be slowed down here: {done.stderr.strip()}"
        return ""

    def cut(self) -> None:
        _ip("-n", f"{self._name}-b", "link", "set", "veth0", "down")

    def mend(self) -> None:
        _ip("-n", f"{self._name}-b", "link", "set", "veth0", "up")


_RECORD = """
import socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
print("listens", flush=True)
with open(sys.argv[2], "wb", buffering=0) as into:
    while True:
        packet = packets.recv(1 << 17)[14:]
        segment = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big")]
        if packet[9] == socket.IPPROTO_TCP and int.from_bytes(segment[2:4], "big") == int(sys.argv[1]):
            into.write(segment[(segment[12] >> 4) * 4 :])
"""


@contextlib.contextmanager
def recording(host: Host, port: int) -> Iterator[Path]:
    """The file of all that comes to a TCP port of a namespace, as it is on the wire, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="q-") as directory:
        into = Path(directory) / "recorded"
        words = [*host.prefix, sys.executable, "-c", _RECORD, str(port), str(into)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as recorder:
            assert recorder.stdout is not None
            assert recorder.stdout.readline() == b"listens\n"
            try:
                yield into
            finally:
                recorder.kill()


def why_no_namespaces() -> str:
    """Why this machine cannot have network namespaces, or ""."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which(IP) is None:
        return "network namespaces need iproute2's ip"
    name = f"q-{os.getpid()}-probe"
    made = subprocess.run([IP, "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


def _join(name: str) -> None:
    ends = [("name", "veth0", "netns", f"{name}-{side}") for side in ADDRESSES]
    _ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
    for side, address in ADDRESSES.items():
        inside = f"{name}-{side}"
        _ip("-n", inside, "address", "add", f"{address}/24", "dev", "veth0")
        for device in ("lo", "veth0"):
            _ip("-n", inside, "link", "set", device, "up")


@contextlib.contextmanager
def two_namespaces() -> Iterator[tuple[Host, Host, Cable]]:
    """Two hosts that see each other and nobody else."""
    name = f"q-{os.getpid()}-{next(_numbers)}"
    hosts = []
    try:
        for side in "ab":
            _ip("netns", "add", f"{name}-{side}")
            hosts.append(Host(ADDRESSES[side], (IP, "netns", "exec", f"{name}-{side}")))
        # Also where no cable is: the host's own connections to itself and its sockets outlive the card.
        _ip("-n", f"{name}-a", "address", "add", f"{ADDRESSES['a']}/32", "dev", "lo")
        _join(name)
        yield hosts[0], hosts[1], Cable(name)
    finally:
        for side in "ab":
            subprocess.run([IP, "netns", "del", f"{name}-{side}"], capture_output=True, check=False)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Namespaces where they can be made, else addresses of one machine."""
    if why_no_namespaces():
        yield Host("127.0.0.3"), Host("127.0.0.2")
        return
    with two_namespaces() as (near, far, _):
        yield near, far


def _ip(*words: str) -> None:
    done = subprocess.run([IP, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Processes:
    """Processes of the product, each on a host; all are ended with the block, and when it fails it shows their logs."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="q-")
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        return self

    def start(self, host: Host, role: str, certificate: str, *words: str, build: Path | None = None) -> None:
        """`build` is the PYTHONPATH of another one than ours."""
        trust = [word for name, file in files(certificate).items() for word in (f"--{name.replace('_', '-')}", file)]
        command = [*host.prefix, sys.executable, "-m", "quiesce.cli.main", role, *words, *trust, "--model", "tiny"]
        with self._log(certificate).open("ab") as log:
            environ = os.environ | ({"PYTHONPATH": str(build)} if build else {})
            self._running[certificate] = subprocess.Popen(command, stdout=log, stderr=log, env=environ)

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running.pop(name).wait()

    def stop(self, name: str) -> int:
        """As told by SIGTERM; its exit code."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def logged(self, name: str, words: str, times: int = 1) -> None:
        """Wait until a process, all its lives together, has said this so often; a log file awakes nobody."""
        until_s = time.monotonic() + SETTLE_S
        while self.log(name).count(words) < times:
            assert time.monotonic() < until_s, f"{name} does not say {words!r}"
            time.sleep(0.02)

    def log(self, name: str) -> str:
        return self._log(name).read_text(encoding="utf-8")

    def _log(self, name: str) -> Path:
        return Path(self._home.name) / name

    def __exit__(self, kind: object, *_: object) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        for name, process in self._running.items():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if kind is not None:
                print(f"--- {name}\n{self._log(name).read_text(encoding='utf-8')[-4000:]}")
        self._home.cleanup()
