"""`quiesce restart`: new lives for the workers of a running server, one after the other, without losing a request.

A worker is told to stop by SIGTERM: it drains, its supervisor starts it again, and the next one follows only when the
new life has everything that the old one had: its routers, and its partners.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from quiesce.cli.attachment import Attachment
from quiesce.cli.run_directory import process_settings, server_line, serving_directory, worker_sockets
from quiesce.cli.terminal import Terminal, tell
from quiesce.errors import PeerUnusable, UsageError
from quiesce.ids import Incarnation

BACK_S = 300.0
"""How long a new life may take to be of use."""
STARTING_S = 60.0
"""How long workers are waited for that have not been of use yet."""
_AGAIN_S = 0.1

Say = Callable[[str], None]


class Standing(msgspec.Struct, frozen=True):
    """What others can do with a worker now. `peers`: the prefill workers that a decode worker is connected to."""

    role: str
    life: Incarnation
    ready: bool
    routers: int
    peers: frozenset[str]


@click.command(short_help="Restart workers one by one; no request fails.")
@click.argument("names", nargs=-1, metavar="[WORKER]...")
@click.option("--run-dir", metavar="DIR", type=click.Path(path_type=Path), help="Which server, where several run.")
@click.option("--anyway", is_flag=True, help="Also a worker that nobody can stand in for: requests fail meanwhile.")
def command(names: Sequence[str], run_dir: Path | None, anyway: bool) -> int:
    """Give every worker (or those named, as in `quiesce inspect`) a new life, one after the other.

    Each finishes what it has begun, for as long as the server's --grace-s, while the others serve; then its supervisor
    starts it again. It needs two workers of each role, and the rights of the user who runs the server.
    """
    directory = serving_directory(run_dir)
    console = Terminal()
    tell(console, f"quiesce: restarting workers of {server_line(directory)}")
    asyncio.run(restart(directory, names, lambda line: tell(console, f"quiesce: {line}"), anyway=anyway))
    return 0


async def restart(directory: Path, names: Collection[str], say: Say, *, anyway: bool = False) -> None:
    """Restart these workers (none: all) of the server in `directory`.

    Raises UsageError before anything is stopped; PeerUnusable when one does not come back: the rest were left alone.
    """
    if not anyway:
        await _all_started(directory, say)
    sockets = {socket.stem: socket for socket in worker_sockets(directory)}
    if unknown := sorted(set(names) - set(sockets)):
        raise UsageError(f"no worker is called {', '.join(unknown)}.", remedy=f"There are {', '.join(sockets)}.")
    team = await _team(sockets)
    chosen = [name for name in team if not names or name in names]
    alone = [name for name in chosen if not _stand_in(name, team)]
    if alone and not anyway:
        raise UsageError(
            f"nobody can stand in for {', '.join(alone)}.",
            remedy="Serve with --prefill 2 --decode 2, or say --anyway and let requests fail meanwhile.",
        )
    for name in chosen:
        await _restart_one(name, sockets, say, anyway=anyway)
    say(f"{len(chosen)} workers restarted" if len(chosen) > 1 else f"{chosen[0]} restarted")


async def _all_started(directory: Path, say: Say) -> None:
    """A server is ready when one pair is: wait a while for the workers that are still to come."""
    planned = {name for name, told in process_settings(directory).items() if "listen" in told}
    said = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STARTING_S):
            while missing := sorted(planned - await _settled(directory)):
                if not said:
                    said = f"waiting for {', '.join(missing)} to be ready"
                    say(said)
                await asyncio.sleep(_AGAIN_S)


async def _settled(directory: Path) -> set[str]:
    """Workers that are ready and, decode workers, connected to every prefill worker that is here."""
    team = await _lately({socket.stem: socket for socket in worker_sockets(directory)})
    prefills = {name for name, each in team.items() if each.role == "prefill"}
    joined = {name for name, each in team.items() if each.role != "decode" or each.peers >= prefills}
    return {name for name in joined if team[name].ready and team[name].routers}


def _stand_in(name: str, team: Mapping[str, Standing]) -> bool:
    """Whether others can do what this worker does: for decode, connected to whom it is connected to."""
    mine = team[name]
    others = [each for other, each in team.items() if other != name and each.role == mine.role and each.ready]
    return any(each.peers >= mine.peers and each.routers >= mine.routers for each in others)


async def _restart_one(name: str, sockets: Mapping[str, Path], say: Say, *, anyway: bool) -> None:
    before = await _team(sockets)
    if not (anyway or _stand_in(name, before)):
        raise PeerUnusable(f"{name} is not restarted: who could stand in for it is not ready any more.")
    say(f"{name} drains")
    await _stop(sockets[name])
    try:
        async with asyncio.timeout(BACK_S):
            while not _is_back(name, before, await _lately(sockets)):  # noqa: ASYNC110 - other processes' state
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError:
        raise PeerUnusable(
            f"{name} is not of use {BACK_S:g} s after it was stopped; the workers after it were left alone.",
            remedy="Its log says why.",
            took_effect=True,
        ) from None
    say(f"{name} is back")


def _is_back(name: str, before: Mapping[str, Standing], now: Mapping[str, Standing]) -> bool:
    """A new life that has what the old one had; so has everybody else, whom its end may have cost a connection."""
    if name not in now or now[name].life == before[name].life:
        return False
    return all(
        other in now and now[other].ready and now[other].routers >= each.routers and now[other].peers >= each.peers
        for other, each in before.items()
        if each.ready or other == name
    )


async def _stop(socket: Path) -> None:
    """SIGTERM, and wait until it has drained and is gone. The pidfd is its own: the connection proves that it lives."""
    async with _attached(socket) as attachment:
        pidfd = os.pidfd_open(attachment.pid)
        try:
            await attachment.snapshot()  # it still answers, so the descriptor names it and nobody else
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        finally:
            os.close(pidfd)
        await attachment.hung_up()


async def _team(sockets: Mapping[str, Path]) -> dict[str, Standing]:
    """Raises PeerUnusable when one does not answer."""
    found = await asyncio.gather(*(_standing(socket) for socket in sockets.values()))
    return dict(zip(sockets, found, strict=True))


async def _lately(sockets: Mapping[str, Path]) -> dict[str, Standing]:
    """Those that answer."""
    found = await asyncio.gather(*(_standing(socket) for socket in sockets.values()), return_exceptions=True)
    return {name: each for name, each in zip(sockets, found, strict=True) if isinstance(each, Standing)}


async def _standing(socket: Path) -> Standing:
    async with _attached(socket) as attachment:
        snapshot = await attachment.snapshot()  # what it told of itself came before
        ready = attachment.load is not None and attachment.load.ready
        peers = frozenset(attachment.peers or ())
        return Standing(snapshot.role, snapshot.incarnation, ready, snapshot.routers, peers)


@contextlib.asynccontextmanager
async def _attached(socket: Path) -> AsyncIterator[Attachment]:
    attachment = await Attachment.open(socket)
    try:
        yield attachment
    finally:
        attachment.close()
