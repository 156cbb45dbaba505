"""The same obligations for a second solver, cvc5, over SMT-LIB 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proof.model import Model
from proof.obligations import Task

TIMEOUT_MS = 60_000


def smtlib(model: Model, work: Task) -> str:
    """One action's obligations as an SMT-LIB 2 script: `unsat` is to be answered once per invariant, in order."""
    lines = ["(set-logic UF)", *_declarations(model), *(f"(assert {each.sexpr()})" for each in work.assumed)]
    for goal in work.goals.values():
        lines += ["(push 1)", f"(assert (not {goal.sexpr()}))", "(check-sat)", "(pop 1)"]
    return "\n".join(lines) + "\n"


def _declarations(model: Model) -> Iterator[str]:
    yield from (f"(declare-sort {name} 0)" for name in model.sorts)
    for each in model.functions:
        domain = " ".join(str(each.domain(n)) for n in range(each.arity()))
        yield f"(declare-fun {each.name()} ({domain}) {each.range()})"
    for name, sorts in model.any_state.declared().items():
        yield f"(declare-fun {name} ({' '.join(map(str, sorts))}) Bool)"
    yield from (f"(declare-fun {each} () {each.sort()})" for each in model.parameters)


def answers(script: str) -> list[str]:
    """What cvc5 says to each `(check-sat)`: `unsat`, `sat` or `unknown`."""
    import cvc5  # a second solver is wanted by --cross only

    solver = cvc5.Solver()
    solver.setOption("incremental", "true")
    solver.setOption("full-saturate-quant", "true")  # where matching finds no instance of a quantifier, enumerate
    solver.setOption("tlimit-per", str(TIMEOUT_MS))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "obligations")
    return [said for said in _invoked(parser, solver) if said]


def _invoked(parser: Any, solver: Any) -> Iterator[str]:
    symbols = parser.getSymbolManager()
    while not (command := parser.nextCommand()).isNull():
        yield str(command.invoke(solver, symbols)).strip()


def disagreements(model: Model, work: Task) -> Mapping[str, str]:
    """The invariants that cvc5 does not prove, with what it said."""
    said = answers(smtlib(model, work))
    if len(said) != len(work.goals):
        return dict.fromkeys(work.goals, "no answer") | {"errors": " ".join(said)}
    return {name: each for name, each in zip(work.goals, said, strict=True) if each != "unsat"}
