"""What the console shows, from what workers and the router say of themselves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from quiesce.protocol.dispatch import RoomView, WorkerSnapshot
from quiesce.router.console.pagemap import STATES, PageMap, page_map
from quiesce.router.link import WorkerLink
from quiesce.router.throughput import Throughput

HELD = ("holding", "quarantined")
MOST_ROWS = 100
NOTHING = "-"


class Row(msgspec.Struct, frozen=True):
    """One hand-off on one worker, for the tables. `awaiting` is in words."""

    worker: str
    attempt: str
    request: str
    state: str
    pages: int
    age_s: float
    awaiting: str = ""


class Pool(msgspec.Struct, frozen=True):
    """One worker. `map` is None while nothing is known of its pool; `trouble` says why it gets no new requests."""

    name: str
    role: str
    life: str
    trouble: str
    running: int = 0
    waiting: int = 0
    page_size: int = 0
    counts: dict[str, int] = {}
    map: PageMap | None = None


class View(msgspec.Struct, frozen=True):
    """Everything. `figures` are texts by name."""

    model: str
    trouble: str
    figures: dict[str, str]
    pools: list[Pool]
    holds: list[Row]
    rooms: list[Row]
    more_rooms: int
    tokens: list[int]


def make_view(
    model: str,
    trouble: str,
    links: Iterable[WorkerLink],
    seen: Mapping[WorkerLink, WorkerSnapshot],
    throughput: Throughput,
    open_breakers: Collection[str] = (),
) -> View:
    """`trouble` is why the server is not ready, or ""; `open_breakers` names workers whose circuit breaker is open."""
    links = list(links)
    names = {link.welcome.incarnation[:8]: link.name for link in links if link.welcome}
    rows = sorted((_row(s.worker, room, names) for s in seen.values() for room in s.rooms), key=lambda row: -row.age_s)
    pools = [_pool(link, seen.get(link), link.name in open_breakers) for link in links]
    holds = [row for row in rows if row.state in HELD]
    rooms = [row for row in rows if row.state not in HELD]
    return View(
        model,
        trouble,
        _figures(pools, holds, throughput),
        sorted(pools, key=lambda pool: (pool.role == "prefill", pool.name)),
        holds[:MOST_ROWS],
        rooms[:MOST_ROWS],
        max(0, len(rooms) - MOST_ROWS),
        throughput.tokens_per_second(),
    )


def _pool(link: WorkerLink, snapshot: WorkerSnapshot | None, broken: bool) -> Pool:
    if link.welcome is None:
        return Pool(link.name, "", "", "not connected")
    trouble = "" if link.load.ready else link.load.reason or "not ready"
    trouble = trouble or ("circuit breaker open" if broken else "")
    life = link.welcome.incarnation[:8]
    if snapshot is None:
        return Pool(link.name, link.welcome.role, life, trouble or "does not answer")
    counts = {state: snapshot.pages.get(state, 0) for state in STATES}
    return Pool(
        link.name,
        snapshot.role,
        life,
        trouble,
        snapshot.running,
        snapshot.waiting,
        snapshot.page_size,
        counts,
        page_map(snapshot),
    )


def _row(worker: str, room: RoomView, names: Mapping[str, str]) -> Row:
    attempt = str(room.attempt) if room.attempt else NOTHING
    awaiting = ", ".join(_awaited(peer, names) for peer in room.awaiting)
    if room.state in HELD and not awaiting:
        awaiting = "its own writes to end"  # prefill holds its source until nothing reads it
    return Row(worker, attempt, room.request, room.state, room.pages, room.age_s, awaiting)


def _awaited(peer: str, names: Mapping[str, str]) -> str:
    """`0@abcdef01` with the worker's name, if that life is still here."""
    name = names.get(peer.partition("@")[2])
    return f"{name} ({peer}) drained or fenced" if name else f"{peer} fenced"


def _figures(pools: list[Pool], holds: list[Row], throughput: Throughput) -> dict[str, str]:
    first_s = throughput.first_token_s()
    figures = {
        "tokens": f"{throughput.token_rate():,.{0 if throughput.token_rate() >= 100 else 1}f}",
        "requests": f"{throughput.request_rate():,.2f}",
        "first": NOTHING if first_s is None else show_s(first_s),
        "running": f"{sum(pool.running for pool in pools if pool.role != 'prefill'):,}",
        "waiting": f"{sum(pool.waiting for pool in pools):,}",
        "held": f"{sum(pool.counts.get(state, 0) for pool in pools for state in ('held', 'quarantined')):,}",
        "oldest": show_s(holds[0].age_s) if holds else NOTHING,
    }
    for pool in pools:
        figures |= {f"{pool.name}.{state}": f"{pages:,}" for state, pages in pool.counts.items()}
        figures |= {f"{pool.name}.running": f"{pool.running:,}", f"{pool.name}.waiting": f"{pool.waiting:,}"}
    return figures


def show_s(seconds: float) -> str:
    """A duration at a glance: 83 ms, 4.2 s, 3 min 5 s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
