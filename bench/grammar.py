"""What a grammar costs: a decode step of the whole batch with and without one, draws included; and what one row's
grammar of the worst kind costs the others, with its masks made beside the engine and, to compare, by the engine.

    python bench/grammar.py [--threads 1] [--rounds 15] [--batch 1 8] [--json results.json]

All sides run in turns within each round, so that a noisy machine disturbs all; the figures are medians of the rounds'
ratios (1.00: a grammar costs nothing): of all steps together, and of the longest one to the usual one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from quiesce.engine.engine import Engine
from quiesce.engine.shaping import Grammar, Mask, shaping_of
from quiesce.ids import RequestId
from quiesce.kv.storage import Pool
from quiesce.protocol.dispatch import Sampling
from quiesce.text.grammars import Grammars, Matcher, as_grammar
from quiesce.text.model import TextModel
from quiesce.worker.grammars import Constraint, Lanes
from quiesce.worker.sequence import Generation, Sequence
from quiesce.worker.step import Plan, decode

PAGE_SIZE = 16
CONTEXT = 192
STEPS = 8
WARM = Sampling(temperature=1.0)
NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 50}
GRAMMARS = {
    "any JSON object": ("json", '{"type": "object"}'),
    "a schema": ("json", json.dumps({"type": "object", "properties": {"names": NAMES}, "required": ["names"]})),
    "a regex": ("regex", "[A-Z][a-z ,]{200,400}[.]"),
}
WAYS = 160
ENTANGLED = "\n".join(
    ["start: " + " | ".join(f"a{i}" for i in range(WAYS))]
    + [f"a{i}: /.{{1,{i + 5}}}/ start | /.*{i}/ start | /.*{i}/" for i in range(WAYS)]
)
LANES = Lanes()

Make = Callable[[], Grammar]
Run = Callable[[], list[float]]


class Within:
    """A grammar whose masks are made on the engine thread, when they are wanted."""

    is_ready = True

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def say(self, token: int) -> None:
        self._matcher.say(token)

    def allowed(self) -> Mask:
        return self._matcher.allowed()

    def wait(self, _: float) -> bool:
        return True

    def when_ready(self, _: Callable[[], None]) -> None:
        """It is."""


async def main() -> None:
    """On a loop, which is where whoever waits for a mask is woken."""
    options = parse()
    engine = Engine.load("smollm2", threads=options.threads)
    grammars = Grammars(TextModel.load("smollm2"))
    worst = as_grammar("grammar", ENTANGLED)
    results = []

    def note(rows: int, name: str, what: str, ratio: float) -> None:
        results.append({"batch": rows, "grammar": name, what: round(ratio, 3)})
        Console().print(f"batch {rows}, {name}: {what} takes {ratio:.2f} times as long")

    for rows in options.batch:
        plain = steps(engine, rows, 0, None)
        for name, (kind, text) in GRAMMARS.items():
            grammar = as_grammar(kind, text)
            bound = steps(engine, rows, rows, partial(shared, grammars, grammar))
            [whole], _ = measure(plain, [bound], options.rounds)
            note(rows, name, "a step", whole)
        sides = {
            "a worst one, in one row": steps(engine, rows + 1, 1, lambda: beside(fresh(grammars, worst))),
            "the same, masks made by the engine": steps(engine, rows + 1, 1, lambda: Within(fresh(grammars, worst))),
        }
        _, longest = measure(steps(engine, rows + 1, 0, None), list(sides.values()), options.rounds)
        for name, ratio in zip(sides, longest, strict=True):
            note(rows + 1, name, "the longest step", ratio)
    if options.json:
        save(Path(options.json), {"threads": options.threads, "results": results})


def save(path: Path, results: dict[str, object]) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="decode batch sizes")
    parser.add_argument("--json", help="also write the results here")
    return parser.parse_args()


def shared(grammars: Grammars, grammar: str) -> Grammar:
    return beside(grammars.compile(grammar))


def beside(matcher: Matcher) -> Grammar:
    compiled: Future[Matcher] = Future()
    compiled.set_result(matcher)
    return Constraint(compiled, LANES)


def fresh(grammars: Grammars, grammar: str) -> Matcher:
    """One that knows nothing of earlier answers."""
    compiled = grammars.compile(grammar).compiled
    compiled.is_broken = True
    return grammars.compile(grammar)


def steps(engine: Engine, rows: int, bound_rows: int, make: Make | None) -> Run:
    """The seconds of some decode steps of `rows` sequences on made-up contexts, the first ones under a grammar."""
    layout = engine.layout(PAGE_SIZE)
    per_row = layout.pages_for(CONTEXT + STEPS)
    pool = Pool.private(layout, rows * per_row)
    pool.kv[:] = np.random.default_rng(0).standard_normal(pool.kv.shape, np.float32)
    table = np.arange(rows * per_row, dtype=np.int32).reshape(rows, per_row)

    def run() -> list[float]:
        engine.bind(pool)
        every = [sequence(engine, row, make() if make and row < bound_rows else None) for row in range(rows)]
        for each, pages in zip(every, table, strict=True):
            each.own(pages, 1)
        return [seconds(lambda: step(engine, every)) for _ in range(STEPS)]

    return run


def sequence(engine: Engine, row: int, grammar: Grammar | None) -> Sequence:
    ends = engine.config.eos_token_ids
    # The end is put off, so that every step is one inside of the grammar.
    shaping = shaping_of(WARM, np.zeros(1, np.int32), ends, engine.config.vocab_size, grammar, unwanted_ids=ends)
    made = Sequence(
        RequestId(str(row)), Generation(WARM, row, frozenset(), 1000), CONTEXT, shaping if grammar else None
    )
    made.last_token = 1000 + row
    return made


def step(engine: Engine, every: list[Sequence]) -> None:
    """As the batch does it: whoever was late waits for its mask."""
    rows = [each for each in every if each.may_step(lambda: None)]
    if not rows:
        time.sleep(0.001)
        return
    tokens = np.array([each.last_token for each in rows], np.int32)
    positions = np.array([each.position for each in rows], np.int32)
    drawn = decode(engine, rows, Plan(tokens, positions, np.stack([each.pages for each in rows])))
    for row, (each, token) in enumerate(zip(rows, drawn.tokens.tolist(), strict=True)):
        if row in drawn.late:
            each.misses += 1
            each.await_mask(lambda: None)
        elif not each.problem:
            each.position += 1
            each.accept(token)


def measure(plain: Run, others: list[Run], rounds: int) -> tuple[list[float], list[float]]:
    """Of each other one, the medians of the rounds' ratios (all steps; the longest to the usual), after a first round
    that is not measured.
    """
    runs = [[each() for each in (plain, *others)] for _ in range(rounds + 1)][1:]
    whole = [[sum(theirs) / sum(ours) for theirs in rest] for ours, *rest in runs]
    longest = [[max(theirs) / statistics.median(ours) for theirs in rest] for ours, *rest in runs]
    return medians(whole), medians(longest)


def medians(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(each) for each in zip(*rounds, strict=True)]


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    asyncio.run(main())
