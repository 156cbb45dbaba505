"""Following what says where workers are while a process runs: --workers-file and --workers-srv."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from quiesce.control.address import Address
from quiesce.control.srv import Lookup, SrvLookup, watch_srv
from quiesce.control.whereabouts import Places, Whereabouts
from quiesce.control.workers_file import NamedWorkers, watch_workers

FILE = "--workers-file"
SRV = "--workers-srv"


class Sources(Protocol):
    """The settings that name sources."""

    @property
    def workers_file(self) -> str | None: ...
    @property
    def workers_srv(self) -> tuple[str, ...]: ...
    @property
    def dns_server(self) -> str | None: ...


class Rules(Protocol):
    """What a process makes of its sources."""

    def of_file(self, named: NamedWorkers) -> Places:
        """Those of the file's workers that concern it. Raises ConfigurationError."""

    def check(self, addresses: Iterable[Address]) -> None:
        """Raises ConfigurationError for an address that it cannot use."""


async def follow(sources: Sources, where: Whereabouts, rules: Rules, lookup: Lookup | None = None) -> None:
    """Tell `where` what the sources say, until cancelled; returns at once when there are none."""
    following = [
        _follow_name(name, where, rules, lookup or SrvLookup(sources.dns_server)) for name in sources.workers_srv
    ]
    if sources.workers_file is not None:
        following.append(_follow_file(Path(sources.workers_file), where, rules))
    async with asyncio.TaskGroup() as group:
        for each in following:
            group.create_task(each)


async def _follow_file(path: Path, where: Whereabouts, rules: Rules) -> None:
    def check(named: NamedWorkers) -> None:
        rules.check(rules.of_file(named))

    await watch_workers(path, lambda named: where.say(FILE, rules.of_file(named)), check)


async def _follow_name(name: str, where: Whereabouts, rules: Rules, lookup: Lookup) -> None:
    def say(found: Iterable[Address]) -> None:
        where.say(f"{SRV} {name}", dict.fromkeys(found, ""))

    await watch_srv(name, lookup, say, rules.check)
