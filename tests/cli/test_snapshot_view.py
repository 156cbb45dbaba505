"""What `quiesce inspect` draws: who owns which pages, and which proofs a hold waits for."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console

from quiesce.cli.snapshot_view import MOST_ROWS, MOST_RUNS, view
from quiesce.errors import PeerUnusable
from quiesce.protocol.dispatch import PageRange, RoomView, WorkerSnapshot

from .fake_process import snapshot

SNAPSHOT = snapshot("decode", "decode-0")


def drawn(*seen: WorkerSnapshot | PeerUnusable) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(view(Path("/run/q"), seen))
    return capture.get()


def test_two_owners_of_neighbouring_pages_are_seen_apart() -> None:
    """The ranges of the disclosed incident: a donor's [14..44] beside a victim's [1..32] would overlap visibly."""
    ranges = (PageRange(1, 13, "used", "victim"), PageRange(14, 44, "held", "donor"), PageRange(45, 255, "free"))
    text = drawn(msgspec.structs.replace(SNAPSHOT, ranges=ranges))
    assert "[1..13]" in text
    assert "[14..44]" in text
    assert "donor" in text
    assert "[45..255]" not in text


def test_an_owners_pages_are_on_one_line() -> None:
    scattered = tuple(PageRange(10 * n, 10 * n + 1, "used", "a") for n in range(MOST_RUNS + 2))
    text = drawn(msgspec.structs.replace(SNAPSHOT, ranges=(*scattered, PageRange(5, 5, "held", "a")), rooms=()))
    [line] = [line for line in text.splitlines() if "[10..11]" in line]
    assert line.split()[1:6] == ["a", "used", "20", "[0..1]", "[10..11]"]
    assert "[70..71] and 2 more" in line
    assert len([line for line in text.splitlines() if " a " in line]) == 2


def test_words_are_those_of_the_logs() -> None:
    text = drawn(SNAPSHOT)
    assert "incarnation abababab" in text
    assert "lease pages" in text


def test_rooms_are_drawn_oldest_first_with_their_proofs() -> None:
    rooms = (RoomView("young", 2, "published", 4, 0.1), RoomView("old", 1, "holding", 31, 9.0, ("drained by 0@ab",)))
    text = drawn(msgspec.structs.replace(SNAPSHOT, rooms=rooms))
    assert text.index("old") < text.index("young")
    assert "drained by 0@ab" in text


def test_why_two_workers_are_not_paired_is_shown() -> None:
    why = "protocol version differs: decode-0 has 4, prefill-1 has 5"
    assert f"not paired with prefill-1: {why}" in drawn(
        msgspec.structs.replace(SNAPSHOT, troubles=(("prefill-1", why),))
    )


def test_landing_pages_have_a_line_of_their_own() -> None:
    assert "landing pages" not in drawn(SNAPSHOT)
    assert "8 landing pages: free 5  held 3" in drawn(msgspec.structs.replace(SNAPSHOT, landing={"free": 5, "held": 3}))


def test_what_does_not_fit_is_counted() -> None:
    ranges = tuple(PageRange(2 * n, 2 * n, "used", f"r{n}") for n in range(MOST_ROWS + 3))
    assert "... 3 more" in drawn(msgspec.structs.replace(SNAPSHOT, ranges=ranges, rooms=()))


def test_a_worker_that_does_not_answer_is_shown_beside_the_others() -> None:
    text = drawn(SNAPSHOT, PeerUnusable("prefill-0 hung up.", remedy="Its own log says why."))
    assert "decode-0" in text
    assert "prefill-0 hung up. Its own log says why." in text


def test_owners_are_text_and_no_markup() -> None:
    text = drawn(msgspec.structs.replace(SNAPSHOT, ranges=(PageRange(0, 0, "used", "[red]x"),)))
    assert "[red]x" in text


def test_what_a_terminal_would_obey_is_shown_as_text() -> None:
    text = drawn(msgspec.structs.replace(SNAPSHOT, worker="d\x1b[2J", troubles=(("p\u202e", "\x1b]0;owned\x07"),)))
    assert "d\\x1b[2J" in text
    assert "not paired with p\\u202e: \\x1b]0;owned\\x07" in text
    assert "\x1b" not in text
