"""`python -m proof`: prove, show that the proof is not empty, kill the mutants. Exit code 1 if anything is amiss."""

from __future__ import annotations

import argparse
import sys
import time

from proof import report
from proof.models import MODELS
from proof.workers import Workers


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    parser.add_argument("--cross", action="store_true", help="prove every obligation with cvc5 too")
    parser.add_argument("--each", action="store_true", help="print every obligation on a line of its own")
    parser.add_argument("--runs", action="store_true", help="print every run with whom each action is about")
    parser.add_argument("--processes", type=int, default=0, help="how many to use (default: one per core)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    asked = arguments(argv)
    options = report.Options(each=asked.each, runs=asked.runs)
    began = time.perf_counter()
    bad = 0
    with Workers(asked.processes) as workers:
        for model in MODELS.values():
            bad += report.show_proof(workers, model, options)
            bad += report.show_stories(workers, model, options)
            bad += report.show_variants(workers, model)
        bad += report.show_mutants(workers, options)
        if asked.cross:
            bad += report.show_cross(workers)
    print(f"\n{'everything holds' if not bad else f'{bad} THINGS FAIL'} ({time.perf_counter() - began:.1f} s)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
