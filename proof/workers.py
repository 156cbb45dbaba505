"""The work of a proof in pieces that processes can share: each piece is named, and done where it lands."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proof.cross import disagreements
from proof.models import MODELS
from proof.mutants import judge, prove_variant, tell
from proof.obligations import START, prove, task


class Kind(StrEnum):
    ACTION = "action"  # all obligations of an action, with Z3
    CROSS = "cross"  # the same, with cvc5
    STORY = "story"
    MUTANT = "mutant"
    VARIANT = "variant"


@dataclass(frozen=True)
class Piece:
    """`index` counts the model's actions (the start is 0), stories, mutants or variants."""

    kind: Kind
    model: str
    index: int


def actions(model: str) -> list[str]:
    return [START, *MODELS[model].possible]


def pieces(kind: Kind, model: str) -> list[Piece]:
    """Everything of this kind that a model has."""
    whole = MODELS[model]
    how_many = {
        Kind.ACTION: len(actions(model)),
        Kind.CROSS: len(actions(model)),
        Kind.STORY: len(whole.stories),
        Kind.MUTANT: len(whole.mutants),
        Kind.VARIANT: len(whole.variants),
    }
    return [Piece(kind, model, index) for index in range(how_many[kind])]


def work(piece: Piece) -> Any:
    """The verdict of one piece: what `prove`, `disagreements`, `tell`, `judge` or `prove_variant` returns."""
    model = MODELS[piece.model]
    match piece.kind:
        case Kind.ACTION:
            return prove(task(model, actions(piece.model)[piece.index]))
        case Kind.CROSS:
            return disagreements(model, task(model, actions(piece.model)[piece.index]))
        case Kind.STORY:
            return tell(model, model.stories[piece.index])
        case Kind.MUTANT:
            return judge(model, model.mutants[piece.index])
        case Kind.VARIANT:
            return prove_variant(model, model.variants[piece.index])


class Workers:
    """As many processes as there are cores; verdicts come in the order of the pieces."""

    def __init__(self, processes: int = 0) -> None:
        count = processes or len(os.sched_getaffinity(0))
        self._pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))

    def verdicts(self, of: list[Piece]) -> Iterator[tuple[Piece, Any]]:
        return zip(of, self._pool.map(work, of, chunksize=2), strict=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
