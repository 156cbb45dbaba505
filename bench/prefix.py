"""Time to first token of a prompt whose first tokens are in the prefix cache, and its ratio to a cold one, in one run.

    python bench/prefix.py [--model smollm2] [--mode pd] [--prefix 1024] [--rest 16] [--repeats 5]

Each round draws a prefix that nobody has seen. "cold" is the first prompt that begins with it, "warm" the second, which
ends differently; they go through a whole server over HTTP, one at a time. Medians count.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics

from quiesce.lab.client import Client
from quiesce.lab.cluster import PRODUCT, Cluster

VOCABULARY = 256


async def measure(told: argparse.Namespace) -> tuple[list[float], list[float]]:
    draw = random.Random(11)
    cold: list[float] = []
    warm: list[float] = []
    flags = ("--model", told.model, "--mode", told.mode)
    async with Cluster(*flags, program=PRODUCT) as server, Client(server.url) as client:
        await client.first_token_s([1, 2, 3], max_tokens=1)
        for _ in range(told.repeats):
            prefix = [draw.randrange(VOCABULARY) for _ in range(told.prefix)]
            for times in (cold, warm):
                rest = [draw.randrange(VOCABULARY) for _ in range(told.rest)]
                times.append(await client.first_token_s(prefix + rest, max_tokens=1))
    return cold, warm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--mode", default="pd", choices=["pd", "aggregated"])
    parser.add_argument("--prefix", type=int, default=1024)
    parser.add_argument("--rest", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    told = parser.parse_args()
    cold, warm = asyncio.run(measure(told))
    low, high = statistics.median(warm), statistics.median(cold)
    print(f"{told.model}, {told.mode}: {told.prefix} + {told.rest} tokens, {told.repeats} rounds")
    print(f"cold {high * 1e3:8.1f} ms to the first token")
    print(f"warm {low * 1e3:8.1f} ms, {low / high:.3f} of it ({high / low:.1f} times as fast)")


if __name__ == "__main__":
    main()
