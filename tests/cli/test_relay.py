"""Children's lines arrive whole, their last words too, and one error of several children is one line."""

from __future__ import annotations

import asyncio
import os
import sys

from rich.console import Console

from quiesce.cli.life import Life
from quiesce.cli.progress import Progress
from quiesce.cli.relay import Once, Relay


async def test_lines_are_put_together_and_the_last_needs_no_end() -> None:
    heard: list[str] = []
    reading, writing = os.pipe()
    relay = Relay(reading, heard.append)
    for part in (b"on", b"e\ntw", b"o\n\nlast"):
        os.write(writing, part)
    os.close(writing)
    await relay.ended.wait()
    assert heard == ["one", "two", "", "last"]
    relay.close()


async def test_a_line_without_an_end_does_not_grow_for_ever() -> None:
    heard: list[str] = []
    reading, writing = os.pipe()
    relay = Relay(reading, heard.append)
    await asyncio.to_thread(os.write, writing, b"x" * 200_000)
    os.close(writing)
    await relay.ended.wait()
    assert len(heard) > 1
    assert sum(map(len, heard)) == 200_000


async def test_last_words_come_before_the_end() -> None:
    heard: list[str] = []
    words = (sys.executable, "-c", "import sys; sys.stderr.write('bye'); sys.exit(3)")
    fd = os.open(os.devnull, os.O_RDONLY)
    life = Life.begin(words, fd, os.environ, heard.append)
    assert await life.ended() == 3
    assert heard == ["bye"]
    os.close(fd)


def test_errors_are_said_once_until_everything_is_up() -> None:
    heard: list[str] = []
    once = Once(heard.append)
    for line in ("quiesce: no", "quiesce: no", "other", "other"):
        once.hear(line)
    once.enough()
    once.hear("quiesce: no")
    assert heard == ["quiesce: no", "other", "other", "quiesce: no"]


def test_a_terminal_gets_one_line_that_goes_away_and_others_a_line_per_stage() -> None:
    plain = Console(width=80, force_terminal=False)
    with plain.capture() as capture, Progress(plain) as progress:
        for stage in ("one", "one", "two"):
            progress.now(stage)
    assert capture.get() == "quiesce: one\nquiesce: two\n"
    terminal = Console(width=80, force_terminal=True)
    with terminal.capture() as capture, Progress(terminal) as progress:
        progress.now("one")
    assert "quiesce: one" not in capture.get()
