"""One step of a batch, on the engine thread: arithmetic, then the draws. An error is found to be some rows' own.

A step that failed may have stored K and V of its rows at some layers. It can be repeated: they go to the same places
again, each row's from its own pages, and a draw depends on nothing that a step changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Rows
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quiesce.engine.engine import Engine
from quiesce.engine.finite import NotFinite, finite_rows
from quiesce.engine.logprobs import tell
from quiesce.engine.sampling import sample
from quiesce.errors import InvariantBroken
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.worker.sequence import Sequence

Ints = NDArray[np.int32]
Logits = NDArray[np.float32]
Told = list[TokenLogprobs | None] | None

NO_TOKEN = -1

MASK_PATIENCE_S = 0.01
"""A step waits so long, for all of its rows together, for masks that took longer than its arithmetic."""


class Plan(NamedTuple):
    """`tokens` and `positions` int32 (B,), `table` int32 (B, P), as `Engine.decode_step` wants them."""

    tokens: Ints
    positions: Ints
    table: Ints

    def row(self, row: int) -> Plan:
        one = slice(row, row + 1)
        return Plan(self.tokens[one], self.positions[one], self.table[one])


class Drawn(NamedTuple):
    """A token (int32) for each row, what is told of them if anything is, and the errors of rows that have no token.

    Rows that are `late` have none either: their grammar did not say in time what may come. Nothing is lost by it but
    arithmetic: the next step they are in computes the same again.
    """

    tokens: Ints
    told: Told
    errors: dict[int, Exception]
    late: frozenset[int] = frozenset()


def decode(engine: Engine, rows: Rows[Sequence], plan: Plan) -> Drawn:
    """Every sequence's next token. Raises when the engine itself is broken, or an invariant is."""
    logits, errors = _logits(engine, plan)
    for row in np.flatnonzero(~finite_rows(logits)).tolist():
        errors.setdefault(row, NotFinite("the model's output is not finite"))
    late = _late(rows)
    if errors or late:
        return _draw_one_by_one(rows, logits, errors, late)
    try:
        return _draw(rows, logits)
    except InvariantBroken:
        raise
    except Exception:
        return _draw_one_by_one(rows, logits, errors, late)


def _late(rows: Rows[Sequence]) -> frozenset[int]:
    ends_s = time.monotonic() + MASK_PATIENCE_S
    return frozenset(row for row, s in enumerate(rows) if not s.has_mask(max(0.0, ends_s - time.monotonic())))


def _logits(engine: Engine, plan: Plan) -> tuple[Logits, dict[int, Exception]]:
    try:
        return engine.decode_step(*plan), {}
    except InvariantBroken:  # pages are not where they are thought to be: nothing here can be trusted
        raise
    except Exception as error:
        return _logits_one_by_one(engine, plan, error)


def _logits_one_by_one(engine: Engine, plan: Plan, error: Exception) -> tuple[Logits, dict[int, Exception]]:
    """Each row alone, to learn whose the error is. Raises it when it is nobody's: the engine cannot even warm up."""
    found: dict[int, Logits] = {}
    errors: dict[int, Exception] = {}
    for row in range(len(plan.tokens)):
        try:
            found[row] = engine.decode_step(*plan.row(row))[0]
        except InvariantBroken:
            raise
        except Exception as own:
            errors[row] = own
    if not found:
        _probe(engine, error)
    logits = np.zeros((len(plan.tokens), engine.config.vocab_size), np.float32)
    for row, its in found.items():
        logits[row] = its
    return logits, errors


def _probe(engine: Engine, error: Exception) -> None:
    """Raise `error` unless the engine computes on pages of its own."""
    try:
        engine.warm_up()
    except Exception:
        raise error from None


def _draw(rows: Rows[Sequence], logits: Logits) -> Drawn:
    sampling = [s.generation.sampling for s in rows]
    seeds, said = [s.generation.seed for s in rows], [s.generated for s in rows]
    tokens = sample(logits, sampling, seeds, said, [s.shaping for s in rows])
    return Drawn(tokens, tell(logits, tokens, sampling), {})


def _draw_one_by_one(rows: Rows[Sequence], logits: Logits, errors: dict[int, Exception], late: frozenset[int]) -> Drawn:
    """The draws of the rows that have no error and are not late, each alone; one that fails is that row's own."""
    tokens = np.full(len(rows), NO_TOKEN, np.int32)
    told: list[TokenLogprobs | None] = [None] * len(rows)
    for row, sequence in enumerate(rows):
        if row in errors or row in late:
            continue
        try:
            drawn = _draw([sequence], logits[row : row + 1])
        except InvariantBroken:
            raise
        except Exception as own:
            errors[row] = own
        else:
            tokens[row], told[row] = drawn.tokens[0], drawn.told[0] if drawn.told else None
    return Drawn(tokens, told, errors, late)
