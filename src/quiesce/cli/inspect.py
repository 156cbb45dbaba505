"""`quiesce inspect`: what each worker of a running server holds right now, and whose every page is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.live import Live

from quiesce.cli.bundle import write_bundle
from quiesce.cli.look import Look
from quiesce.cli.router_look import ask_router, is_ready, router_view
from quiesce.cli.run_directory import server_line, serving_directory, worker_sockets
from quiesce.cli.snapshot_view import view
from quiesce.cli.terminal import Terminal, tell
from quiesce.cli.waiting_spare import spares
from quiesce.control.plain_text import ascii_json
from quiesce.errors import PeerUnusable, UsageError
from quiesce.protocol.dispatch import WorkerSnapshot


@click.command(short_help="Watch pools, rooms, holds and page owners.")
@click.option("--run-dir", metavar="DIR", type=click.Path(path_type=Path), help="Which server, where several run.")
@click.option("--once", is_flag=True, help="Look once and end; always so when not on a terminal.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per look, until Ctrl-C or --once: workers, spares."
)
@click.option(
    "--bundle", metavar="FILE", type=click.Path(path_type=Path), help="Write a .tar.gz for a bug report and end."
)
@click.option("--router", "router_url", metavar="URL", help="Ask that router, wherever it is, whom it uses.")
@click.option("--every", "interval_s", metavar="SECONDS", type=float, default=0.5, show_default=True, help="Refresh.")
def command(
    run_dir: Path | None, once: bool, as_json: bool, bundle: Path | None, router_url: str | None, interval_s: float
) -> int:
    """Show pools, rooms, holds with age and awaited proofs, page ranges by owner, and spares. Ctrl-C ends it.

    All workers are asked at once. Who does not answer within 2 s is named, with since when and what is known of its
    process, beside what the others said. Looking changes nothing; it needs the rights of the user who runs the server.
    A bundle holds topology, versions, settings without keys, snapshots, metrics and the last steps of the hand-off
    machines; nothing that users said.

    With --router, once: is it ready, which pairs serve, over what and since when, which workers does it refuse, which
    pairs does it not form, why and since when. Of large fleets 64 workers are told, with 8 partners each.
    QUIESCE_ADMIN_KEY is the key of a router that has one. Exit 0: it is ready, 1: it is not, 2: usage, 4: it tells
    nothing.
    """
    if router_url is not None:
        _refuse_beside_router(run_dir, bundle)
        return _router(router_url, Console(highlight=False), as_json=as_json)
    directory = serving_directory(run_dir)
    tell(Terminal(), f"quiesce: {server_line(directory)}")
    console = Console(highlight=False)
    if bundle is not None:
        return _bundle(directory, bundle, console)
    if as_json:
        look = _print_json(directory, console, interval_s, once)
    else:
        live = console.is_terminal and not once
        look = _watch(directory, console, interval_s) if live else _print_once(directory, console)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(look)
    return 0


def _router(url: str, console: Console, *, as_json: bool) -> int:
    status = ask_router(url)
    shown = ascii_json(msgspec.json.encode(status)) if as_json else router_view(url, status)
    console.print(shown, soft_wrap=True, markup=False, emoji=False)
    return 0 if is_ready(status) else 1


def _refuse_beside_router(run_dir: Path | None, bundle: Path | None) -> None:
    """Raises UsageError for what a router cannot be asked."""
    if bundle is not None:
        why = "--bundle is of a server on this host, and --router asks one that may be anywhere."
        raise UsageError(why, remedy="Leave out --router, on the server's host.")
    if run_dir is not None:
        raise UsageError("--run-dir and --router name two servers.", remedy="Leave out one of them.")


def _bundle(directory: Path, target: Path, console: Console) -> int:
    names = asyncio.run(write_bundle(directory, target))
    console.print(f"{target}: {len(names)} files. Have a look before you send it.", markup=False, soft_wrap=True)
    return 0


async def snapshots(sockets: Sequence[Path]) -> AsyncIterator[list[WorkerSnapshot | PeerUnusable]]:
    """Look again at each step, at all at once: a snapshot per worker, or why there is none."""
    looks = [Look(socket) for socket in sockets]
    try:
        while True:
            yield await asyncio.gather(*(look.take() for look in looks))
    finally:
        for look in looks:
            look.close()


async def _print_once(directory: Path, console: Console) -> None:
    async for seen in snapshots(worker_sockets(directory)):
        console.print(view(directory, seen, spares(directory)))
        return


async def _print_json(directory: Path, console: Console, interval_s: float, once: bool) -> None:
    sockets = worker_sockets(directory)
    async for seen in snapshots(sockets):
        workers = {socket.stem: _as_data(look) for socket, look in zip(sockets, seen, strict=True)}
        by_name = workers | {spare.name: spare for spare in spares(directory)}
        console.print(ascii_json(msgspec.json.encode(by_name)), soft_wrap=True, markup=False, emoji=False)
        if once:
            return
        await asyncio.sleep(interval_s)


async def _watch(directory: Path, console: Console, interval_s: float) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        async for seen in snapshots(worker_sockets(directory)):
            live.update(view(directory, seen, spares(directory)), refresh=True)
            await asyncio.sleep(interval_s)


def _as_data(look: WorkerSnapshot | PeerUnusable) -> object:
    return {"error": str(look)} if isinstance(look, PeerUnusable) else look
