"""`python -m tests.mutants`: every mutant against every layer; writes docs/mutants.md. Exit code 1 if one survives."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.mutants import page
from tests.mutants.known import BY_NAME, MUTANTS
from tests.mutants.layers import LAYERS, seen_by


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--mutant", action="append", choices=list(BY_NAME), metavar="NAME", help="only this one")
    parser.add_argument("--layer", action="append", choices=LAYERS, help="only this one; the page is not written")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args(argv)


def matrix(names: Sequence[str], layers: Sequence[str], processes: int) -> Iterator[tuple[str, dict[str, str]]]:
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {name: pool.submit(seen_by, name, layers) for name in names}
        yield from ((name, job.result()) for name, job in jobs.items())


def main(argv: list[str]) -> int:
    asked = arguments(argv)
    names, layers = asked.mutant or [each.name for each in MUTANTS], asked.layer or LAYERS
    seen, bad = {}, 0
    for name, found in matrix(names, layers, asked.processes):
        seen[name] = found
        survives = sum(map(bool, found.values())) < (1 if page.why_alone(BY_NAME[name]) or asked.layer else 2)
        bad += survives
        cells = "; ".join(f"{layer} {said}" for layer, said in found.items() if said)
        print(
            f"{'SURVIVES' if survives else 'killed  '} {BY_NAME[name].rule:<7} {name}: {cells or 'nobody'}", flush=True
        )
    if not asked.mutant and not asked.layer:
        page.PAGE.write_text(page.written(seen), encoding="utf-8")
    print(f"{len(names) - bad} of {len(names)} mutants are killed{'' if not bad else f', {bad} SURVIVE'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
