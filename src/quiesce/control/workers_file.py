"""The file of --workers-file: which workers there are and where, read again whenever it changes."""

from __future__ import annotations

import asyncio
import logging
import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec

from quiesce.control.address import Address, TcpAddress, parse_address
from quiesce.control.plain_text import why_no_name
from quiesce.errors import ConfigurationError

MOST_FILE_BYTES = 1 << 20
MOST_WORKERS = 1024
LOOK_S = 1.0

_log = logging.getLogger(__name__)


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each table: a worker's name = "its address"."""

    prefill: dict[str, str] = {}
    decode: dict[str, str] = {}
    aggregated: dict[str, str] = {}


class NamedWorkers(msgspec.Struct, frozen=True):
    """Where workers are, by name."""

    prefill: dict[str, Address] = {}
    decode: dict[str, Address] = {}
    aggregated: dict[str, Address] = {}

    @property
    def everywhere(self) -> tuple[Address, ...]:
        return (*self.prefill.values(), *self.decode.values(), *self.aggregated.values())


def read_workers(path: Path) -> NamedWorkers:
    """What the file says. Raises ConfigurationError with everything that is wrong with it."""
    told = f"--workers-file {path}"
    try:
        with path.open("rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
        if len(content) > MOST_FILE_BYTES:
            raise ConfigurationError([f"{told} is longer than {MOST_FILE_BYTES} bytes"])
        tables = msgspec.convert(tomllib.loads(content.decode()), _Tables)
    except OSError as error:
        raise ConfigurationError([f"{told}: {error.strerror or error}"]) from error
    except (ValueError, RecursionError) as error:  # of UTF-8, TOML and msgspec
        raise ConfigurationError([f"{told}: {error}"]) from error
    return _checked(told, tables)


def _checked(told: str, tables: _Tables) -> NamedWorkers:
    problems: list[str] = []
    found: dict[str, dict[str, Address]] = {}
    for role in tables.__struct_fields__:
        found[role] = {}
        for name, text in getattr(tables, role).items():
            try:
                found[role][name] = _address(name, text)
            except ConfigurationError as error:
                problems += [f"{told}: [{role}] {problem}" for problem in error.problems]
    named = NamedWorkers(**found)
    names = [name for role in found.values() for name in role]
    if len(names) > MOST_WORKERS:
        problems.append(f"{told} names {len(names)} workers; at most {MOST_WORKERS} are allowed")
    if len(set(names)) < len(names) or len(set(named.everywhere)) < len(names):
        problems.append(f"{told}: each name and each address may be there once")
    if problems:
        raise ConfigurationError(problems)
    return named


def _address(name: str, text: str) -> Address:
    if problem := why_no_name(name):
        raise ConfigurationError([problem])
    address = parse_address(text)
    if isinstance(address, TcpAddress) and address.port == 0:
        raise ConfigurationError([f"{name}: port 0 is for listening"])
    return address


async def watch_workers(
    path: Path, changed: Callable[[NamedWorkers], None], check: Callable[[NamedWorkers], None]
) -> None:
    """For ever: call `changed` with what the file says whenever that is new.

    A file that is missing, half written or wrong (also when `check` raises ConfigurationError) changes nothing; that is
    said once.
    """
    seen: object = None
    last: NamedWorkers | None = None
    while True:
        if (stamp := _stamp(path)) != seen:
            seen = stamp
            try:
                workers = read_workers(path)
                check(workers)
            except ConfigurationError as error:
                _log.warning("the workers stay as they were: %s", error)
            else:
                if workers != last:
                    last = workers
                    changed(workers)
        await asyncio.sleep(LOOK_S)


def _stamp(path: Path) -> object:
    """Changes with the file: written in place, replaced, or (a mounted ConfigMap) behind another link."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
