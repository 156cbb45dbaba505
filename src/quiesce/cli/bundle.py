"""`quiesce inspect --bundle FILE`: what a bug report needs, in one archive, and nothing that users said."""

from __future__ import annotations

import asyncio
import http.client
import io
import os
import platform
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from quiesce.cli.attachment import Attachment
from quiesce.cli.port import reachable
from quiesce.cli.run_directory import process_settings, worker_sockets
from quiesce.cli.version import versions
from quiesce.cli.waiting_spare import spares
from quiesce.errors import PeerUnusable, UsageError

ABOUT = """\
A bundle of `quiesce inspect --bundle`, for a bug report.

machine.json      versions, platform, cores, memory
topology.json     workers: roles, lives, limits, peers, load; spares, and whether one waits
settings.json     what each process was told; keys are hidden
snapshots/        pools, rooms, holds and page ranges of each worker
metrics/          of each worker and of the router, as Prometheus text
trace/            the last steps of each worker's hand-off machine; tokens and digests are shown as *
errors.json       what could not be had

No prompt, answer, token or key is in it. Paths, worker names and request ids are: have a look before you send it.
"""

_SECRET = re.compile(r"(^|[_-])(key|keys|secret|secrets|password|passwords)$")
_HTTP_S = 10.0

Files = dict[str, bytes]


async def write_bundle(run_dir: Path, target: Path) -> list[str]:
    """Make the archive `target` (0600) from the server of `run_dir`; the names in it.

    What a process does not tell is noted in errors.json. Raises UsageError when `target` exists or cannot be made.
    """
    settings = process_settings(run_dir)
    errors: dict[str, str] = {}
    files: Files = {"README.txt": ABOUT.encode(), "machine.json": _json(_machine())}
    topology: dict[str, object] = {}
    await asyncio.gather(*(_note_worker(socket, files, topology, errors) for socket in worker_sockets(run_dir)))
    await asyncio.to_thread(_ask_router, settings.get("router", {}), files, errors)
    topology |= {spare.name: spare for spare in spares(run_dir)}
    files["topology.json"] = _json(topology)
    files["settings.json"] = _json({name: redacted(said) for name, said in settings.items()})
    files["errors.json"] = _json(errors)
    _write(target, files)
    return sorted(files)


def redacted(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings without what opens doors."""
    return {name: "(hidden)" if _SECRET.search(name) else value for name, value in settings.items()}


async def _note_worker(socket: Path, files: Files, topology: dict[str, object], errors: dict[str, str]) -> None:
    try:
        topology[socket.stem] = await _ask_worker(socket, files)
    except PeerUnusable as problem:
        errors[socket.stem] = str(problem)


async def _ask_worker(socket: Path, files: Files) -> dict[str, object]:
    name = socket.stem
    attachment = await Attachment.open(socket)
    try:
        files[f"snapshots/{name}.json"] = _json(await attachment.snapshot())
        files[f"metrics/{name}.txt"] = (await attachment.metrics()).encode()
        files[f"trace/{name}.txt"] = "".join(f"{line}\n" for line in await attachment.trace()).encode()
    finally:
        attachment.close()
    return {"welcome": attachment.welcome, "load": attachment.load, "prefills": attachment.peers}


def _ask_router(settings: Mapping[str, object], files: Files, errors: dict[str, str]) -> None:
    """Over HTTP, as the world sees it."""
    for path, name in (("/metrics", "metrics/router.txt"), ("/readiness", "readiness.json")):
        try:
            connection = http.client.HTTPConnection(
                reachable(str(settings.get("host", "127.0.0.1"))), int(str(settings.get("port", 0))), timeout=_HTTP_S
            )
            key = str(settings.get("admin-key", ""))
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = connection.getresponse()
            if answer.status in (200, 503):
                files[name] = answer.read()
            else:
                errors[f"router {path}"] = f"HTTP {answer.status}"
            connection.close()
        except (OSError, ValueError, http.client.HTTPException) as problem:
            errors[f"router {path}"] = str(problem)


def _machine() -> dict[str, object]:
    return {
        "versions": versions(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _write(target: Path, files: Files) -> None:
    """Only the user may read it, and nothing is overwritten."""
    try:
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise UsageError(f"cannot make {target}: {problem.strerror}.", remedy="Name a new file.") from None
    with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"quiesce-bundle/{name}")
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
