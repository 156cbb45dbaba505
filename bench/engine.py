"""Our engine against `transformers`: same model, dtype, threads and process, interleaved; ratios count.

    python bench/engine.py [--threads 1] [--rounds 7] [--context 192] [--json results.json]

Both sides run in turns within each round, so that a noisy machine disturbs both; the table shows the best time of each
and the median of the rounds' ratios (above 1: ours is faster).
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, DynamicCache

from quiesce.engine.engine import AbortFlag, Engine
from quiesce.kv.storage import Pool
from quiesce.text import catalog

PAGE_SIZE = 16
PREFILL_TOKENS = 1024


class Case(NamedTuple):
    """`ours` and `theirs` each compute `tokens` tokens per call."""

    name: str
    tokens: int
    ours: Callable[[], object]
    theirs: Callable[[], object]


class Measured(NamedTuple):
    name: str
    ours_tokens_per_s: float
    theirs_tokens_per_s: float
    ratio: float


def main() -> None:
    options = parse()
    engine = Engine.load("smollm2", threads=options.threads, deterministic=options.deterministic)
    directory = catalog.prepare(catalog.resolve("smollm2"))
    oracle: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    oracle.eval()
    torch.set_num_threads(options.threads)
    cases = [decode_case(engine, oracle, rows, options.context) for rows in options.batch]
    cases.append(prefill_case(engine, oracle))
    results = [measure(case, options.rounds) for case in cases]
    show(results, options.threads)
    if options.json:
        settings = {"threads": options.threads, "context": options.context, "page_size": PAGE_SIZE, "dtype": "float32"}
        content = settings | {"results": [result._asdict() for result in results]}
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--context", type=int, default=192, help="tokens before the decode steps")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32], help="decode batch sizes")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--json", help="also write the results here")
    return parser.parse_args()


def decode_case(engine: Engine, oracle: Any, rows: int, context: int) -> Case:
    """Decode steps of `rows` sequences that have `context` tokens."""
    steps = max(2, 16 // rows)
    return Case(
        f"decode, batch {rows}, context {context}",
        rows * steps,
        our_decode(engine, rows, context, steps),
        their_decode(oracle, rows, context, steps),
    )


def our_decode(engine: Engine, rows: int, context: int, steps: int) -> Callable[[], object]:
    layout = engine.layout(PAGE_SIZE)
    per_row = layout.pages_for(context + steps)
    pool = Pool.private(layout, rows * per_row)
    pool.kv[:] = np.random.default_rng(0).standard_normal(pool.kv.shape, np.float32)
    table = np.random.default_rng(0).permutation(rows * per_row).astype(np.int32).reshape(rows, per_row)
    ids = np.arange(1000, 1000 + rows, dtype=np.int32)

    def run() -> None:
        engine.bind(pool)
        for step in range(steps):
            engine.decode_step(ids, np.full(rows, context + step, np.int32), table)

    return run


def their_decode(oracle: Any, rows: int, context: int, steps: int) -> Callable[[], object]:
    """`generate`'s way: a DynamicCache, logits of the last token only. The cache is cropped back after each run."""
    cache = DynamicCache(config=oracle.config)
    ids = torch.arange(1000, 1000 + rows)[:, None]
    with torch.inference_mode():
        oracle(torch.randint(1000, 20000, (rows, context)), **cached(oracle, cache))

    def run() -> None:
        with torch.inference_mode():
            for _ in range(steps):
                oracle(ids, **cached(oracle, cache))
            cache.crop(-steps)

    return run


def cached(oracle: Any, cache: DynamicCache) -> dict[str, Any]:
    """Arguments for a forward pass that uses and extends `cache`, under the name this release gives it."""
    name = "cache" if "cache" in inspect.signature(oracle.forward).parameters else "past_key_values"
    return {name: cache, "use_cache": True, "logits_to_keep": 1}


def prefill_case(engine: Engine, oracle: Any) -> Case:
    layout = engine.layout(PAGE_SIZE)
    pool = Pool.private(layout, layout.pages_for(PREFILL_TOKENS))
    pages = np.random.default_rng(0).permutation(pool.pages).astype(np.int32)
    ids = np.random.default_rng(0).integers(1000, 20000, PREFILL_TOKENS).astype(np.int32)
    their_ids = torch.from_numpy(ids.astype(np.int64))[None]

    def ours() -> None:
        engine.bind(pool)
        engine.prefill_chunk(ids, 0, pages, AbortFlag(), want_logits=True)

    def theirs() -> None:
        with torch.inference_mode():
            oracle(their_ids, **cached(oracle, DynamicCache(config=oracle.config)))

    return Case(f"prefill, {PREFILL_TOKENS} tokens", PREFILL_TOKENS, ours, theirs)


def measure(case: Case, rounds: int) -> Measured:
    """One unmeasured round, then `rounds` rounds of both sides in turns."""
    times = [(seconds(case.ours), seconds(case.theirs)) for _ in range(rounds + 1)][1:]
    ratio = statistics.median(theirs / ours for ours, theirs in times)
    ours, theirs = (min(side) for side in zip(*times, strict=True))
    return Measured(case.name, case.tokens / ours, case.tokens / theirs, ratio)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def show(results: list[Measured], threads: int) -> None:
    table = Table(title=f"SmolLM2-135M, float32, {threads} thread{'s' if threads > 1 else ''}")
    for column in ("", "quiesce tok/s", "transformers tok/s", "ratio (median of rounds)"):
        table.add_column(column, justify="left" if not column else "right")
    for result in results:
        speeds = f"{result.ours_tokens_per_s:.0f}", f"{result.theirs_tokens_per_s:.0f}"
        table.add_row(result.name, *speeds, f"{result.ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
