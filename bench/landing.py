"""Seconds to the first token with staged landing, and with a digest alone, as ratios to direct landing, in one run.

    python bench/landing.py [--model smollm2] [--tokens 128 512 1024] [--rounds 10] [--transport shm]

One server for each way to land waits on this machine, idle unless it is asked. In each round every server is asked one
prompt that none has seen, in turn, each round beginning with another. Ratios are of the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics

from quiesce.lab.client import Client
from quiesce.lab.cluster import PRODUCT, Cluster

WAYS = {
    "direct": ("--landing", "direct"),
    "digest": ("--landing", "direct", "--payload-digest", "blake2b"),
    "staged": ("--landing", "staged"),
}


async def measure(clients: dict[str, Client], tokens: int, rounds: int, draw: random.Random) -> None:
    seconds: dict[str, list[float]] = {way: [] for way in clients}
    before = await landed(clients["staged"])
    for number in range(rounds + 1):
        prompt = [draw.randrange(1000, 20_000) for _ in range(tokens)]
        ways = list(clients)[number % len(clients) :] + list(clients)[: number % len(clients)]
        for way in ways:
            took_s = await clients[way].first_token_s(prompt)
            if number:  # the first round warms up
                seconds[way].append(took_s)
    direct = seconds["direct"]
    line = f"{tokens:6} tokens  direct {statistics.median(direct) * 1000:6.0f} ms"
    for way in ("digest", "staged"):
        ratios = [mine / other for mine, other in zip(seconds[way], direct, strict=True)]
        line += f"   {way} {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
    took_s, count = [now - then for now, then in zip(await landed(clients["staged"]), before, strict=True)]
    print(f"{line}   of that copy and check {1000 * took_s / count:.1f} ms", flush=True)


async def landed(client: Client) -> tuple[float, float]:
    """Seconds of all copies and checks so far, and how many."""
    name = "quiesce_landing_seconds"
    return await client.metric(f"{name}_sum", role="decode"), await client.metric(f"{name}_count", role="decode")


async def main(told: argparse.Namespace) -> None:
    print(f"seed {told.seed}; model {told.model}; transport {told.transport}", flush=True)
    shared = ("--model", told.model, "--transport", told.transport, "--context-length", str(max(told.tokens) + 16))
    shared = (*shared, "--prefix-cache", "off", "--decode-pool-tokens", "8192", "--prefill-pool-tokens", "8192")
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for way, flags in WAYS.items():
            server = await stack.enter_async_context(Cluster(*shared, *flags, program=PRODUCT))
            clients[way] = await stack.enter_async_context(Client(server.url))
        for tokens in told.tokens:
            await measure(clients, tokens, told.rounds, random.Random(told.seed + tokens))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512, 1024])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp"])
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
