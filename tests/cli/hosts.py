"""Hosts for a test: addresses of this machine's loopback, or network namespaces joined by a cable."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.control.trial import files

IP = shutil.which("ip") or "ip"
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


class Host:
    """An address, and how a program is run there."""

    def __init__(self, address: str, prefix: Sequence[str] = ()) -> None:
        self.address = address
        self.prefix = tuple(prefix)

    def free_port(self) -> int:
        if self.prefix:  # nobody else is there
            return 9000 + next(_numbers)
        with socket.create_server((self.address, 0)) as sock:
            port: int = sock.getsockname()[1]
            return port

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


@contextlib.contextmanager
def two_namespaces() -> Iterator[tuple[Host, Host, Cable]]:
    """Two hosts that see each other and nobody else."""
    name = f"q-{os.getpid()}-{next(_numbers)}"
    hosts = []
    try:
        for side in "ab":
            _ip("netns", "add", f"{name}-{side}")
        ends = [("name", "veth0", "netns", f"{name}-{side}") for side in "ab"]
        _ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for number, side in enumerate("ab", start=1):
            inside, address = f"{name}-{side}", f"10.77.0.{number}"
            _ip("-n", inside, "address", "add", f"{address}/24", "dev", "veth0")
            for device in ("lo", "veth0"):
                _ip("-n", inside, "link", "set", device, "up")
            hosts.append(Host(address, (IP, "netns", "exec", inside)))
        yield hosts[0], hosts[1], Cable(name)
    finally:
        for side in "ab":
            subprocess.run([IP, "netns", "del", f"{name}-{side}"], capture_output=True, check=False)


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

    def start(self, host: Host, role: str, certificate: str, *words: str) -> None:
        trust = [word for name, file in files(certificate).items() for word in (f"--{name.replace('_', '-')}", file)]
        command = [*host.prefix, sys.executable, "-m", "quiesce.cli.main", role, *words, *trust, "--model", "tiny"]
        with self._log(certificate).open("ab") as log:
            self._running[certificate] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running.pop(name).wait()

    def stop(self, name: str) -> int:
        """As told by SIGTERM; its exit code."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)

    def log(self, name: str) -> str:
        return self._log(name).read_text(encoding="utf-8")

    def _log(self, name: str) -> Path:
        return Path(self._home.name) / name

    def __exit__(self, kind: object, *_: object) -> None:
        for process in self._running.values():
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
