"""What the console shows is what workers said, in words."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from quiesce.protocol.dispatch import Load, PageRange, RoomView, Welcome, WorkerSnapshot
from quiesce.router.console.view import View, make_view, show_s
from quiesce.router.fleet import Fleet
from quiesce.router.link import WorkerLink
from quiesce.router.throughput import Throughput

LIVES = {"prefill-0": "a" * 32, "decode-0": "b" * 32}
PREFILL = f"0@{LIVES['prefill-0'][:8]}"


def link_to(name: str, role: str) -> WorkerLink:
    link = WorkerLink(Path(f"/run/{name}.sock"), Fleet([]))
    link.welcome = Welcome(name, role, LIVES[name], "tiny", "f", 64, 64, 16, 4)  # type: ignore[arg-type]
    link.load = Load(1, 0, 64)
    return link


def snapshot(name: str, *rooms: RoomView, held: int = 0) -> WorkerSnapshot:
    pages = {"free": 64 - held, "held": held}
    ranges = (PageRange(0, held - 1, "held", "req-1"),) if held else ()
    role = name.partition("-")[0]
    return WorkerSnapshot(name, role, LIVES[name], pages, 16, ranges, rooms, 2, 1)  # type: ignore[arg-type]


def view(*rooms: RoomView, held: int = 0) -> View:
    prefill, decode = link_to("prefill-0", "prefill"), link_to("decode-0", "decode")
    seen = {
        prefill: snapshot("prefill-0", RoomView("req-1", 0, "holding", 3, 1.5)),
        decode: snapshot("decode-0", *rooms, held=held),
    }
    return make_view("tiny", "", [prefill, decode], seen, Throughput())


def test_holds_come_first_by_age_and_say_what_they_await() -> None:
    shown = view(
        RoomView("req-2", 8, "committed", 3, 9.0),
        RoomView("req-1", 7, "holding", 3, 2.5, (PREFILL,)),
        RoomView("req-0", 6, "quarantined", 3, 90.0, (PREFILL, "0@cccccccc")),
        held=6,
    )
    assert [(row.worker, row.attempt, row.state) for row in shown.holds] == [
        ("decode-0", "6", "quarantined"),
        ("decode-0", "7", "holding"),
        ("prefill-0", "-", "holding"),
    ]
    assert [row.awaiting for row in shown.holds] == [
        f"prefill-0 ({PREFILL}) drained or fenced, 0@cccccccc fenced",
        f"prefill-0 ({PREFILL}) drained or fenced",
        "its own writes to end",
    ]
    assert [row.request for row in shown.rooms] == ["req-2"]
    assert shown.figures["oldest"] == "1 min 30 s"
    assert shown.figures["held"] == "6"


def test_figures_of_an_idle_server() -> None:
    figures = view().figures
    assert (figures["tokens"], figures["requests"], figures["first"]) == ("0.0", "0.00", "-")
    assert (figures["running"], figures["waiting"], figures["decode-0.free"]) == ("2", "2", "64")


def test_the_pools_that_answer_users_come_first() -> None:
    assert [pool.name for pool in view().pools] == ["decode-0", "prefill-0"]


def test_a_worker_that_is_not_there_is_shown_as_such() -> None:
    away, dumb = WorkerLink(Path("/run/decode-1.sock"), Fleet([])), link_to("decode-0", "decode")
    dumb.load = msgspec.structs.replace(dumb.load, ready=False, reason="draining")
    shown = make_view("tiny", "no pair", [away, dumb], {}, Throughput())
    assert {(pool.name, pool.trouble) for pool in shown.pools} == {
        ("unix:/run/decode-1.sock", "not connected"),
        ("decode-0", "draining"),
    }
    assert all(pool.map is None for pool in shown.pools)


def test_an_open_breaker_is_a_trouble() -> None:
    broken, fine = link_to("decode-0", "decode"), link_to("prefill-0", "prefill")
    shown = make_view("tiny", "", [broken, fine], {broken: snapshot("decode-0")}, Throughput(), ["decode-0"])
    assert [(pool.name, pool.trouble) for pool in shown.pools] == [
        ("decode-0", "circuit breaker open"),
        ("prefill-0", "does not answer"),
    ]


def test_rows_are_bounded() -> None:
    rooms = [RoomView(f"req-{number}", number, "committed", 1, 1.0) for number in range(1, 251)]
    shown = view(*rooms)
    assert (len(shown.rooms), shown.more_rooms) == (100, 150)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0831, "83 ms"), (0.9999, "1000 ms"), (4.24, "4.2 s"), (185.0, "3 min 5 s")]
)
def test_durations_at_a_glance(seconds: float, words: str) -> None:
    assert show_s(seconds) == words
