"""Moves as lines of text: stable, and no two of one state alike."""

from __future__ import annotations

import pickle
import random

from quiesce.lab.explorer.config import TWIN, A, B, config
from quiesce.lab.explorer.move import Move
from quiesce.lab.explorer.moves import successors
from quiesce.lab.explorer.rounds import without_rounds
from quiesce.lab.explorer.search import explore
from quiesce.lab.explorer.world import World

EVERYTHING = config(
    requests=(A, B, TWIN), prefills=2, ranks=2, pages=2, lease_pages=2, chunks=2, fence=True, cache=True,
    abort=1, ended=1, loss=1, copy=1, fail=1, quiesced=1, cut=1, crash_p=1, crash_d=1, close=1, clock=2, resend=2,
)  # fmt: skip


STORY = [
    "submit A",
    "abort #1",
    "clock hold of #1 at decode",
    "arrive A at p0",
    "deliver publish #1 d0 -> p0 [open 1 2..]",
    "compute A chunk 0 at p0",
]


def test_no_two_moves_of_a_state_read_alike() -> None:
    choose = random.Random(3)
    with without_rounds():
        for _ in range(8):
            world = World(EVERYTHING)
            for _ in range(80):
                ways = sorted(successors(world), key=lambda step: str(step[0]))
                if not ways:
                    break
                assert len({str(move) for move, _ in ways}) == len(ways)
                _, world = choose.choice(ways)


def test_a_trace_reads_as_a_story() -> None:
    found = explore(config(abort=1, clock=1, unsafe=True))
    assert found.violation.startswith("no_wild_write")
    assert list(map(str, found.trace)) == STORY


def test_moves_travel_between_processes() -> None:
    move = Move("compute", 0, "A", 1)
    assert pickle.loads(pickle.dumps(move)) == move  # noqa: S301
    assert str(move) == "compute A chunk 1 at p0"
