"""What `python -m proof` prints, section by section. Each returns how many things are not as they should be."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from proof.model import Model, Mutant
from proof.models import MODELS
from proof.mutants import MutantVerdict, untold
from proof.obligations import Obligation
from proof.workers import Kind, Workers, actions, pieces


@dataclass(frozen=True)
class Options:
    """`each`: every obligation on a line of its own. `runs`: every run with whom each action is about."""

    each: bool = False
    runs: bool = False


def number(count: int) -> str:
    return f"{count:,}"


def show_proof(workers: Workers, model: Model, options: Options) -> int:
    """Per action: how many obligations are proved, and those that are not."""
    began = time.perf_counter()
    print(f"\n{model.name}: {len(model.possible)} actions, {len(model.invariants)} invariants")
    proved = total = 0
    for piece, verdict in workers.verdicts(pieces(Kind.ACTION, model.name)):
        good = [each for each in verdict if each.proved]
        proved, total = proved + len(good), total + len(verdict)
        spent = sum(each.seconds for each in verdict)
        print(f"  {actions(model.name)[piece.index]:<20} {len(good):>3} of {len(verdict)} proved {spent:6.2f} s")
        _show_obligations(verdict, options)
    spent = time.perf_counter() - began
    print(f"{model.name}: {number(proved)} of {number(total)} obligations proved in {spent:.1f} s")
    return total - proved


def _show_obligations(verdict: list[Obligation], options: Options) -> None:
    for each in verdict:
        if options.each or not each.proved:
            print(f"    {'proved' if each.proved else 'FAILS'} {each.name}")


def show_stories(workers: Workers, model: Model, options: Options) -> int:
    """Vacuity: the start exists, and every action happens in a run from it."""
    bad = 0
    for piece, found in workers.verdicts(pieces(Kind.STORY, model.name)):
        story = model.stories[piece.index]
        if found is None:
            bad += 1
            print(f"  IMPOSSIBLE {story.steps}")
        elif options.runs:
            print(f"  {' '.join(found.steps)}")
    missing = untold(model)
    for name in sorted(missing):
        print(f"  NEVER SHOWN TO HAPPEN {name}")
    shown, total = len(model.possible) - len(missing), len(model.possible)
    print(f"{model.name}: {shown} of {total} actions happen in runs from the start")
    return bad + len(missing)


def show_variants(workers: Workers, model: Model) -> int:
    """Designs with less that are proved as well: those checks are a second line, or serve more than safety."""
    bad = 0
    for piece, verdict in workers.verdicts(pieces(Kind.VARIANT, model.name)):
        failed = [each for each in verdict if not each.proved]
        bad += len(failed)
        print(f"  {'FAILS' if failed else 'holds'}  {model.variants[piece.index].name}")
        _show_obligations(failed, Options())
    return bad


def show_mutants(workers: Workers, options: Options) -> int:
    """The table: each protection left out, the obligation that breaks, and the harm that follows."""
    print("\nmutants: model, rule, what is left out -> obligation that breaks; harm from the start")
    bad = total = 0
    for name, model in MODELS.items():
        for piece, verdict in workers.verdicts(pieces(Kind.MUTANT, name)):
            mutant = model.mutants[piece.index]
            total, bad = total + 1, bad + (not verdict.killed)
            _show_mutant(name, mutant, verdict, options)
    print(f"mutants: {total - bad} of {total} killed")
    return bad


def _show_mutant(name: str, mutant: Mutant, verdict: MutantVerdict, options: Options) -> None:
    state = "killed" if verdict.killed else "SURVIVES"
    harm = f"{mutant.harm.violates} in {len(mutant.harm.names)} steps" if verdict.harm else "NO RUN DOES HARM"
    broken = mutant.breaks if verdict.broken else f"DOES NOT BREAK {mutant.breaks}"
    spared = "" if verdict.spared else "; POSSIBLE WITH THE RULE TOO"
    print(f"  {state} {name:<6} {mutant.rule:<9} {mutant.name} -> {broken}; {harm}{spared}")
    if options.runs and verdict.harm:
        print(f"      {' '.join(verdict.harm.steps)}")


def show_cross(workers: Workers) -> int:
    """How many of all obligations cvc5 proves too."""
    began = time.perf_counter()
    bad = total = 0
    for name, model in MODELS.items():
        for piece, unproved in workers.verdicts(pieces(Kind.CROSS, name)):
            total += len(model.invariants)
            bad += len(unproved)
            _show_disagreement(name, actions(name)[piece.index], unproved)
    print(f"\ncvc5 proves {number(total - bad)} of {number(total)} obligations in {time.perf_counter() - began:.1f} s")
    return bad


def _show_disagreement(model: str, action: str, unproved: Mapping[str, str]) -> None:
    for invariant, said in unproved.items():
        print(f"  cvc5 says {said} of {model}: {action} / {invariant}")
