"""A bundle holds what a bug report needs, and nothing that users said nor what opens doors."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from quiesce.cli.bundle import redacted, write_bundle
from quiesce.errors import UsageError
from quiesce.lab.client import Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.faults import Held, Hold, LetGo
from quiesce.protocol.dispatch import WorkerSnapshot

MARKER, KEY = "xylophone", "a-key-that-opens-doors"
FLAGS = ("--model", "tiny", "--context-length", "512", "--page-size", "4", "--deterministic")


def test_keys_are_hidden() -> None:
    said = {"api-key": [KEY], "console_key": KEY, "password": KEY, "pool_tokens": 5, "host": "::1", "keys_file": "x"}
    assert redacted(said) == {
        "api-key": "(hidden)",
        "console_key": "(hidden)",
        "password": "(hidden)",
        "pool_tokens": 5,
        "host": "::1",
        "keys_file": "x",
    }


async def test_nothing_is_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "bundle.tar.gz"
    target.write_text("mine")
    with pytest.raises(UsageError, match="File exists"):
        await write_bundle(tmp_path, target)
    assert target.read_text() == "mine"


async def test_what_cannot_be_had_is_noted() -> None:
    """A directory whose server was killed: the bundle is made all the same."""
    with tempfile.TemporaryDirectory(prefix="q") as name, socket.socket(socket.AF_UNIX) as left:
        directory = Path(name)
        left.bind(str(directory / "prefill-0.sock"))
        (directory / "router.toml").write_text("port = 1")
        (directory / "decode-0.toml").write_text("port = ")
        await write_bundle(directory, directory / "b.tar.gz")
        files = unpack(directory / "b.tar.gz")
    assert set(json.loads(files["errors.json"])) == {"prefill-0", "router /metrics", "router /readiness"}
    assert json.loads(files["settings.json"]) == {"router": {"port": 1}}


def unpack(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        members = {member.name.removeprefix("quiesce-bundle/"): archive.extractfile(member) for member in archive}
        return {name: content.read() for name, content in members.items() if content is not None}


def is_held(view: WorkerSnapshot) -> bool:
    return [room.state for room in view.rooms] == ["holding"]


@pytest.mark.slow
async def test_a_bundle_of_a_busy_server(tmp_path: Path) -> None:
    """One request is answered, one is held: both are to be seen, by ids."""
    async with Cluster(*FLAGS, "--api-key", KEY) as cluster, Client(cluster.url, key=KEY) as client:
        assert not (await client.ask({"prompt": f"first {MARKER}", "max_tokens": 4, "stop": [MARKER]})).error
        faults = await cluster.faults("prefill-0")
        await faults.order(Hold())
        asking = asyncio.create_task(client.ask({"prompt": f"second {MARKER}", "max_tokens": 4}))
        await faults.wait_for(Held)
        asking.cancel()
        held = await cluster.until("decode-0", is_held)
        target = tmp_path / "bundle.tar.gz"
        await inspect("--run-dir", str(cluster.worker_socket("decode-0").parent), "--bundle", str(target))
        await faults.order(LetGo())
        faults.close()
    files = unpack(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert json.loads(files["errors.json"]) == {}
    assert json.loads(files["topology.json"])["decode-0"]["prefills"] == ["prefill-0"]
    assert json.loads(files["settings.json"])["router"]["api-key"] == "(hidden)"
    assert json.loads(files["snapshots/decode-0.json"])["rooms"][0]["request"] == held.rooms[0].request
    assert f"request={held.rooms[0].request}".encode() in files["trace/prefill-0.txt"]
    assert b"Hold(attempt=" in files["trace/decode-0.txt"]
    assert b'quiesce_pages{role="decode",state="held"' in files["metrics/decode-0.txt"]
    assert b"quiesce_requests_total" in files["metrics/router.txt"]
    spelled = ", ".join(str(byte) for byte in MARKER.encode())
    for name, content in files.items():
        for secret in (MARKER, KEY, spelled, spelled.replace(", ", " "), MARKER.encode().hex()):
            assert secret.encode() not in content, name


async def inspect(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "quiesce.cli.main", "inspect", *words)
    assert await process.wait() == 0
