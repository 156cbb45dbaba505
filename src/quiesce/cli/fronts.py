"""`quiesce serve --fronts`: which worker is at which port, known before anything is started."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quiesce.cli.port import free_ports, url
from quiesce.cli.settings import Composed
from quiesce.errors import ConfigurationError
from quiesce.router.settings import RouterSettings


def front_problems(composed: Composed) -> list[str]:
    """Why the fronts that were asked for cannot be; `--fronts 0` becomes a number."""
    first = composed.get("fronts")
    if not isinstance(first, int) or composed.problems:
        return []
    try:
        composed.build(RouterSettings)
        own = msgspec.convert(composed.get("port"), int)
        composed.values["fronts"] = free_ports(str(composed.get("front_host")), first, _workers(composed), own)
    except ConfigurationError as error:
        return error.problems
    return []


def front_rows(composed: Composed, workers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """For people: a front's name and its address. `workers` are (name, role) in the order of their ports."""
    first = composed.get("fronts")
    if not isinstance(first, int):
        return []
    host = str(composed.get("front_host"))
    return [
        (f"front of {name}", f"{url(host, first + index)}{f', bootstrap port {first + index}' * (role == 'prefill')}")
        for index, (name, role) in enumerate(workers)
    ]


def _workers(composed: Composed) -> int:
    names = ("decode",) if composed.get("mode") == "aggregated" else ("prefill", "decode")
    return sum(count for name in names if isinstance(count := composed.get(name), int))
