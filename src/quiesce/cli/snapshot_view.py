"""How `quiesce inspect` draws workers: pools by state, rooms with the proofs they wait for, page ranges by owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from quiesce.cli.terminal import plainly
from quiesce.cli.waiting_spare import WaitingSpare
from quiesce.errors import PeerUnusable
from quiesce.protocol.dispatch import PageRange, RoomView, WorkerSnapshot

STYLES = {
    "free": "dim",
    "used": "green",
    "cached": "cyan",
    "reserved": "blue",
    "held": "yellow",
    "quarantined": "bold red",
}
MOST_ROWS = 24
"""Rows of rooms and of owners that are drawn for one worker; the rest is counted."""
MOST_RUNS = 8
"""Runs of pages that are drawn for one owner."""


HOLDS = {"model": "libraries and model", "libraries": "libraries", "router": "a router's libraries and tokenizer"}


def view(
    directory: Path, seen: Sequence[WorkerSnapshot | PeerUnusable], spares: Sequence[WaitingSpare] = ()
) -> RenderableType:
    """One panel per worker, then a line for each spare."""
    panels = [_unseen(look) if isinstance(look, PeerUnusable) else worker_panel(look) for look in seen]
    return Group(plainly(str(directory), style="dim"), *panels, *(_spare(spare) for spare in spares))


def _spare(spare: WaitingSpare) -> Text:
    holds = HOLDS.get(spare.holds, spare.holds)
    if spare.waiting:
        return plainly(f"{spare.name}: waits for a process to die; holds {holds}")
    return plainly(f"{spare.name}: none waits now (one would hold {holds})", style="yellow")


def worker_panel(snapshot: WorkerSnapshot) -> Panel:
    """Pools, rooms and ranges of one worker."""
    parts: list[RenderableType] = [pools(snapshot)]
    if snapshot.rooms:
        parts.append(rooms(snapshot.rooms))
    owned = [owned for owned in snapshot.ranges if owned.state != "free"]
    if owned:
        parts.append(ranges(owned))
    parts += [plainly(f"not paired with {name}: {reason}", style="red") for name, reason in snapshot.troubles]
    title = f"{snapshot.worker}  {snapshot.role}  incarnation {snapshot.incarnation[:8]}"
    return Panel(Group(*parts), title=plainly(title), title_align="left")


def pools(snapshot: WorkerSnapshot) -> Text:
    """Pages by state, then requests; a second line for pages that writes land in, where that is not the pool."""
    line = _by_state(f"pages of {snapshot.page_size}", snapshot.pages)
    line.append(f"| running {snapshot.running}, waiting {snapshot.waiting}")
    return line.append("\n").append(_by_state("landing pages", snapshot.landing)) if snapshot.landing else line


def _by_state(what: str, counts: Mapping[str, int]) -> Text:
    line = plainly(f"{sum(counts.values()):,} {what}: ")
    for state, pages in counts.items():
        line.append(plainly(f"{state} {pages:,}  ", style=STYLES.get(state, "") if pages else "dim"))
    return line


def rooms(views: Sequence[RoomView]) -> Table:
    """Hand-offs, the oldest first, with the proofs that are still missing."""
    table = Table("attempt", "request", "state", "lease pages", "age", "awaiting", box=None, pad_edge=False)
    for room in sorted(views, key=lambda room: -room.age_s)[:MOST_ROWS]:
        cells = (str(room.attempt), room.request, room.state, f"{room.pages:,}", f"{room.age_s:.1f} s")
        _add(table, STYLES["held"] if room.awaiting else "", *cells, ", ".join(room.awaiting) or "-")
    return _counted(table, len(views))


def ranges(owned: Sequence[PageRange]) -> Table:
    """Whose pages are which, a line for each owner and state; free ones are left out."""
    by_owner: dict[tuple[str, str], list[PageRange]] = {}
    for run in owned:
        by_owner.setdefault((run.owner, run.state), []).append(run)
    table = Table("owner", "state", "count", "pages", box=None, pad_edge=False)
    for (owner, state), runs in list(by_owner.items())[:MOST_ROWS]:
        count = sum(run.last - run.first + 1 for run in runs)
        _add(table, STYLES.get(state, ""), owner, state, f"{count:,}", _shown_runs(runs))
    return _counted(table, len(by_owner))


def _shown_runs(runs: Sequence[PageRange]) -> str:
    shown = " ".join(f"[{run.first}..{run.last}]" for run in runs[:MOST_RUNS])
    return shown if len(runs) <= MOST_RUNS else f"{shown} and {len(runs) - MOST_RUNS:,} more"


def _add(table: Table, style: str, *cells: str) -> None:
    """Cells are names and numbers of workers: text, never markup."""
    table.add_row(*(plainly(cell) for cell in cells), style=style)


def _counted(table: Table, rows: int) -> Table:
    if rows > MOST_ROWS:
        table.add_row(f"... {rows - MOST_ROWS:,} more")
    return table


def _unseen(problem: PeerUnusable) -> Panel:
    return Panel(plainly(str(problem), style="red"))
