"""Time to the first token where decode reads (pull), as a ratio to where prefill writes (push), in one run.

    python bench/pull.py [--model smollm2] [--tokens 256 1024] [--rounds 9] [--transport tcp]

Two whole servers, one of each kind, are asked in turns, with prompts that nothing is cached of; in each round the other
one is first. Push sends a chunk while the next is computed; pull begins when the prompt is there.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics

from quiesce.lab.client import Client
from quiesce.lab.cluster import PRODUCT, Cluster


async def measure(push: Client, pull: Client, tokens: int, rounds: int) -> None:
    draw = random.Random(tokens)
    taken: dict[Client, list[float]] = {push: [], pull: []}
    for number in range(rounds + 1):
        prompt = [draw.randrange(100, 250) for _ in range(tokens)]
        for client in (push, pull) if number % 2 else (pull, push):
            seconds = await client.first_token_s(prompt)
            if number:  # the first round warms
                taken[client].append(seconds)
    ratios = [theirs / mine for mine, theirs in zip(taken[push], taken[pull], strict=True)]
    push_ms, pull_ms = (1000 * statistics.median(taken[client]) for client in (push, pull))
    median = statistics.median(ratios)
    told = f"{tokens:>7,} {push_ms:>10.1f} {pull_ms:>10.1f} {median:>7.2f}"
    print(f"{told}   {min(ratios):.2f} to {max(ratios):.2f}", flush=True)


async def main(model: str, lengths: list[int], rounds: int, transport: str) -> None:
    flags = ("--model", model, "--transport", transport, "--prefix-cache", "off", "--trust-network")
    print(" tokens    push ms    pull ms   ratio   lowest, highest", flush=True)
    async with (
        Cluster(*flags, program=PRODUCT) as pushes,
        Cluster(*flags, "--transfer", "pull", program=PRODUCT) as pulls,
        Client(pushes.url) as push,
        Client(pulls.url) as pull,
    ):
        for tokens in lengths:
            await measure(push, pull, tokens, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--transport", default="tcp")
    asked = parser.parse_args()
    asyncio.run(main(asked.model, asked.tokens, asked.rounds, asked.transport))
