"""Which processes a server consists of, and what each is told: pure, from settings to child specs and their files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from quiesce.cli.child import ChildSpec
from quiesce.cli.serve_settings import ServeSettings
from quiesce.cli.settings import Composed
from quiesce.cli.waiting_spare import waiting_file
from quiesce.control.address import show_address
from quiesce.router.settings import RouterSettings
from quiesce.worker.settings import WorkerSettings

Entry = Callable[[str, str], Sequence[str]]
"""(role, name) to the words that start such a process, up to where its options begin."""

ROUTER_NAME = "router"
SPARE_NAME = "spare"
WORKER_ROLES = frozenset({"prefill", "decode", "aggregated"})
EXIT_S = 5.0
"""What a process has on top of its part of the grace, to say how its last requests ended and to exit."""


class Planned(msgspec.Struct, frozen=True):
    """A process to be: `settings` (by field name) go into its file, which `spec.argv` names.

    `stands_in_for` are roles, and not empty for a spare only.
    """

    spec: ChildSpec
    settings: dict[str, object]
    file: Path
    socket: Path | None = None
    stands_in_for: frozenset[str] = frozenset()


def product_entry(role: str, name: str) -> Sequence[str]:
    """The product's own commands."""
    return (sys.executable, "-m", "quiesce.cli.main", role)


class Pools(msgspec.Struct, frozen=True):
    """Tokens of each worker that prefills only, and of each that generates; None: it decides for itself."""

    prefill: int | None = None
    generating: int | None = None


def plan(
    serve: ServeSettings,
    composed: Composed,
    run_dir: Path,
    entry: Entry = product_entry,
    pools: Pools | None = None,
    spare: str | None = None,
) -> list[Planned]:
    """Workers first, then the router, then spares; names are prefill-0, decode-0, ..., or aggregated-0, ...

    `pools` are said by whoever starts several workers on one machine: each of them alone would find less memory free.
    `spare` is what one holds, None for no spare.
    """
    pools = pools or Pools(serve.prefill_pool_tokens, serve.decode_pool_tokens)
    router_s, _ = split_grace(serve.grace_s)
    prefills, others = worker_names(serve)
    peers = [f"{name}={_address(run_dir, name)}" for name in prefills]
    everyone = {"model": serve.model, "log_level": serve.log_level}
    # A worker that is told to stop alone has all the grace: its router still gives it what it has begun.
    shared = _said(composed, WorkerSettings) | everyone | {"grace_s": serve.grace_s}
    told = everyone | {"host": serve.host, "port": serve.port, "grace_s": router_s}
    told["worker"] = [_address(run_dir, name) for name in (*prefills, *others)]
    return [
        *(
            _worker(run_dir, name, entry, shared | _pool(pools.prefill) | _data_port(shared, number))
            for number, name in enumerate(prefills)
        ),
        *(
            _worker(run_dir, name, entry, shared | _pool(pools.generating) | _peers(peers) | _data_port(shared, number))
            for number, name in enumerate(others)
        ),
        _planned(run_dir, ROUTER_NAME, ROUTER_NAME, entry, _said(composed, RouterSettings) | told),
        *(_spares(run_dir, entry, shared, spare) if spare else ()),
    ]


def _spares(run_dir: Path, entry: Entry, shared: dict[str, object], holds: str) -> list[Planned]:
    """One for workers and one for the router, which needs no torch."""
    kinds = ((SPARE_NAME, holds, WORKER_ROLES), (f"{SPARE_NAME}-{ROUTER_NAME}", ROUTER_NAME, frozenset({ROUTER_NAME})))
    planned = []
    for name, held, roles in kinds:
        told = shared | {"holds": held, "waits_at": str(waiting_file(run_dir, name))}
        spare = _planned(run_dir, SPARE_NAME, name, entry, told)
        planned.append(msgspec.structs.replace(spare, stands_in_for=roles))
    return planned


def worker_names(serve: ServeSettings) -> tuple[list[str], list[str]]:
    """Those that prefill only, and those that generate."""
    if serve.mode == "aggregated":
        return [], _names("aggregated", serve.decode)
    return _names("prefill", serve.prefill), _names("decode", serve.decode)


def split_grace(grace_s: float) -> tuple[float, float]:
    """The router's part, which lets requests finish, and the workers', which lets holds settle; together `grace_s`."""
    workers_s = min(5.0, grace_s / 4)
    return grace_s - workers_s, workers_s


def stages(workers: Sequence[str], delay_s: float, grace_s: float) -> list[tuple[Sequence[str], float]]:
    """Who is told to stop, one stage after the other, and how many seconds each stage has."""
    router_s, workers_s = split_grace(grace_s)
    return [((ROUTER_NAME,), delay_s + router_s + EXIT_S), (workers, workers_s + EXIT_S)]


def _worker(run_dir: Path, name: str, entry: Entry, settings: dict[str, object]) -> Planned:
    said = settings | {"listen": _address(run_dir, name)}
    return _planned(run_dir, name.rpartition("-")[0], name, entry, said, ("--name", name))


def _planned(
    run_dir: Path, role: str, name: str, entry: Entry, settings: dict[str, object], words: tuple[str, ...] = ()
) -> Planned:
    file = run_dir / f"{name}.toml"
    options = (*words, "--config", str(file))
    socket = run_dir / f"{name}.sock" if role in WORKER_ROLES else None
    return Planned(ChildSpec(name, role, (*entry(role, name), *options), (role, *options)), settings, file, socket)


def _said(composed: Composed, struct: type[msgspec.Struct]) -> dict[str, object]:
    """What the user said of the settings that `struct` has; its defaults are its own business."""
    names = {field.name for field in msgspec.structs.fields(struct)}
    return {name: value for name, value in composed.values.items() if name in names}


def _data_port(shared: dict[str, object], number: int) -> dict[str, object]:
    """Workers on one machine take data at ports of their own."""
    first = shared.get("data_port")
    return {"data_port": first + number} if isinstance(first, int) and first else {}


def _pool(tokens: int | None) -> dict[str, object]:
    return {} if tokens is None else {"pool_tokens": tokens}


def _peers(peers: list[str]) -> dict[str, object]:
    return {"peer": peers} if peers else {}


def _names(role: str, count: int) -> list[str]:
    return [f"{role}-{number}" for number in range(count)]


def _address(run_dir: Path, name: str) -> str:
    return show_address(run_dir / f"{name}.sock")
