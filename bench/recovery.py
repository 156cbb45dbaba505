"""Seconds from kill -9 of a worker to the next answer, with and without a spare, in one run.

    python bench/recovery.py [--model smollm2] [--clients 4] [--rounds 3] [--spare off auto] [--victims prefill-0 ...]

A whole server with one prefill and one decode worker answers clients that ask again at once. A worker is killed; "seen"
is when another life greets at its socket, "served" when the first answer is complete that was asked for after the last
error. Each kill is the first in its server's life.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from quiesce.errors import PeerUnusable
from quiesce.ids import Incarnation
from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import PRODUCT, Cluster

ROUTER = "router"
_AGAIN_S = 0.02
_STILL_S = 3.0


def questions(count: int) -> list[dict[str, Any]]:
    """Prompts of a few pages, answers of two tokens: what is measured is how soon they come, not how long they are."""
    return [
        {"prompt": [(7 * number + i) % 251 for i in range(48)], "max_tokens": 2, "temperature": 0, "ignore_eos": True}
        for number in range(count)
    ]


class Asking:
    """Clients that ask again and again. `answered` are (began, ended) of answers, in seconds."""

    def __init__(self, client: Client, asked: Sequence[dict[str, Any]]) -> None:
        self.answered: list[tuple[float, float]] = []
        self.last_error_s = 0.0
        self._client, self._asked = client, asked
        self._came = asyncio.Event()

    async def ask_on(self, number: int) -> None:
        while True:
            began_s = time.monotonic()
            try:
                answer = await self._client.ask(self._asked[number])
            except httpx.HTTPError as error:
                answer = Answer(error=type(error).__name__)
            if answer.error:
                self.last_error_s = time.monotonic()
                await asyncio.sleep(_AGAIN_S)
                continue
            self.answered.append((began_s, time.monotonic()))
            self._came.set()

    async def served_again_s(self, killed_s: float, many: int) -> float:
        """When the first answer came after the last error; `many` more must follow without one."""
        while True:
            self._came.clear()
            since_s = max(killed_s, self.last_error_s)
            ends = sorted(ended_s for began_s, ended_s in self.answered if began_s > since_s)
            if len(ends) >= many:
                return ends[0]
            await self._came.wait()


async def life_of(server: Cluster, name: str) -> Incarnation | None:
    with contextlib.suppress(PeerUnusable, StopIteration):
        return (await server.snapshot(name)).incarnation
    return None


async def seen_again_s(server: Cluster, name: str, before: Incarnation | None) -> float:
    """When another life answered at the worker's socket."""
    while (now := await life_of(server, name)) is None or now == before:  # noqa: ASYNC110 - another process's state
        await asyncio.sleep(_AGAIN_S)
    return time.monotonic()


async def spares_wait(server: Cluster) -> None:
    """Until both spares have nothing to do: their processor time stands still."""
    before = (0.0, 0.0)
    while (now := (cpu_s(server.pid("spare")), cpu_s(server.pid("spare-router")))) != before or not all(now):
        before = now
        await asyncio.sleep(_STILL_S)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far; 0 when there is none."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


async def kill_one(told: argparse.Namespace, spare: str, victim: str) -> tuple[float, float]:
    """Seconds until the victim's next life was seen (nobody looks for the router's), and until an answer was served."""
    flags = ("--model", told.model, "--context-length", "2048", "--spare", spare)
    async with Cluster(*flags, program=PRODUCT) as server, Client(server.url) as client:
        asked = questions(told.clients)
        asking = Asking(client, asked)
        clients = [asyncio.create_task(asking.ask_on(number)) for number in range(told.clients)]
        try:
            await asyncio.sleep(told.settle_s)
            if spare != "off":
                await spares_wait(server)
            before = None if victim == ROUTER else await life_of(server, victim)
            pid, killed_s = server.pid(victim), time.monotonic()
            os.kill(pid, signal.SIGKILL)
            seen_s = killed_s if victim == ROUTER else await seen_again_s(server, victim, before)
            served_s = await asking.served_again_s(killed_s, 4 * told.clients)
        finally:
            for task in clients:
                task.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
        if told.log:
            print(server.log)
    return seen_s - killed_s, served_s - killed_s


async def measure(told: argparse.Namespace) -> None:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(told.rounds):
        for victim in told.victims:
            for spare in told.spare:
                times = await kill_one(told, spare, victim)
                found.setdefault((victim, spare), []).append(times)
                print(f"{victim:10s} spare {spare:10s} seen {times[0]:6.2f} s  served {times[1]:6.2f} s", flush=True)
    print(f"\n{told.model}, {told.clients} clients, {told.rounds} rounds: median (slowest) seconds from kill -9")
    for (victim, spare), pairs in found.items():
        seen, served = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        print(
            f"{victim:10s} spare {spare:10s} seen {statistics.median(seen):6.2f} ({max(seen):.2f})"
            f"  served {statistics.median(served):6.2f} ({max(served):.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spare", nargs="+", default=["off", "auto"])
    parser.add_argument("--victims", nargs="+", default=["prefill-0", "decode-0"])
    parser.add_argument("--settle-s", type=float, default=3.0, help="Load before the kill; then until the spare waits.")
    parser.add_argument("--log", action="store_true", help="Print each server's log.")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
