"""Milliseconds that the prefix tree needs for a prompt of a million tokens: insertion, lookup, readers, eviction.

    python bench/prefix_tree.py [--pages 65536] [--page-size 16]

All of it happens on a worker's event loop, so it is what others wait for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from quiesce.kv.prefix_tree import PrefixTree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=65_536)
    parser.add_argument("--page-size", type=int, default=16)
    told = parser.parse_args()
    tree = PrefixTree(told.pages, told.page_size)
    n_tokens = told.pages * told.page_size
    prompt = np.random.default_rng(0).integers(0, 50_000, n_tokens).astype("<u4").tobytes()
    pages = np.arange(told.pages, dtype=np.int32)
    steps: dict[str, Callable[[], object]] = {
        "insert": lambda: tree.add("", prompt, pages, past_copies=False),
        "look up": lambda: tree.find("", prompt, told.pages),
        "enter": lambda: tree.enter(pages),
        "leave": lambda: tree.leave(pages),
        "evict one": lambda: tree.evict(1),
        "evict the rest": lambda: tree.evict(told.pages),
    }
    print(f"{n_tokens:,} tokens in {told.pages:,} pages of {told.page_size}")
    for name, step in steps.items():
        started = time.perf_counter()
        step()
        print(f"{name:>15} {(time.perf_counter() - started) * 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
