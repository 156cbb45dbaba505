"""`python -m proof.tla`: TLC visits every state of small worlds. Exit code 1 if anything is not as it should be."""

from __future__ import annotations

import argparse
import sys

from proof.tla.checker import NoCheckerError, Verdict, jar, java, run
from proof.tla.configurations import LARGER, MISSING, WHOLE, Configuration

PATIENCE_S = 3600.0


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.tla", description=__doc__)
    parser.add_argument("--larger", action="store_true", help="the larger worlds too (see --seconds)")
    parser.add_argument("--missing", action="store_true", help="worlds without a protection, which must fail")
    parser.add_argument("--seconds", type=float, default=PATIENCE_S, help="the most that one world may take")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    asked = arguments(argv)
    try:
        program = java(), jar()
    except NoCheckerError as problem:
        print(f"TLC was not run: {problem}. `make proof` needs neither.")
        return 0
    worlds = (*WHOLE, *(LARGER if asked.larger else ()), *(MISSING if asked.missing else ()))
    bad = sum(show(each, run(each, program, asked.seconds)) for each in worlds)
    print(f"{len(worlds) - bad} of {len(worlds)} worlds are as they should be")
    return 1 if bad else 0


def show(world: Configuration, verdict: Verdict | None) -> int:
    """Print what came of a world; 1 if it is not what should have come."""
    if verdict is None:
        print(f"  {world.name}: not done in time", flush=True)
        return 1
    good = verdict.violated == world.violates if world.violates else verdict.states > 0 and not verdict.violated
    if verdict.violated:
        found = f"{verdict.violated} is violated in {verdict.steps} steps"
    else:
        found = f"{verdict.states:,} states, {verdict.transitions:,} transitions, depth {verdict.depth}"
    print(f"  {world.name}: {found} ({verdict.seconds:.0f} s)", flush=True)
    if not good:
        print(verdict.output[-4000:])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
