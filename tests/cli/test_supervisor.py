"""Children are restarted when they crash, stopped in order, and never outlive their supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quiesce.cli.child import BackOff, ChildSpec
from quiesce.cli.life import describe_end
from quiesce.cli.spare_child import SpareSpec
from quiesce.cli.supervisor import FIRST_LIVES, Supervisor

from .roll import FAKE, Called, Roll, open_roll


@pytest.fixture
async def roll(tmp_path: Path) -> AsyncIterator[Roll]:
    async with open_roll(tmp_path / "roll") as opened:
        yield opened


class Words(list[str]):
    """What the supervisor said."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def say(self, line: str) -> None:
        self.append(line)
        self._more.set()

    async def first(self) -> str:
        """The first line, once it is said."""
        await self._more.wait()
        return self[0]


def spec(roll: Roll, name: str, behaviour: str) -> ChildSpec:
    words = ("fake", "--name", name)
    return ChildSpec(name, "fake", (sys.executable, str(FAKE), str(roll.path), behaviour, *words), words)


def spare(roll: Roll, behaviour: str = "steady", role: str = "fake") -> SpareSpec:
    program = (sys.executable, str(FAKE), str(roll.path), behaviour, "spare")
    return SpareSpec(ChildSpec("spare", "spare", program), frozenset({role}))


def supervisor(words: Words, *specs: ChildSpec, spares: Sequence[SpareSpec] = (), **more: Any) -> Supervisor:
    no_pauses = partial(BackOff, first_s=0.0)
    return Supervisor(specs, words.say, environ=os.environ, back_off=no_pauses, spares=spares, **more)


async def with_spare(house: Supervisor, roll: Roll) -> tuple[Called, Called]:
    """`a`, which is ready, and the spare that waits beside it."""
    first = (await roll.called())["a"]
    house.mark_ready("a")
    house.begin_spares()
    return first, (await roll.called())["spare"]


def test_back_off_doubles_up_to_a_limit_and_forgives() -> None:
    back_off = BackOff(first_s=1.0, most_s=3.0, forgiven_after_s=60.0)
    assert [back_off.after(0.1) for _ in range(5)] == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert back_off.after(61.0) == 0.0
    assert back_off.after(0.1) == 1.0


def test_ends_are_described_in_words() -> None:
    assert describe_end(3) == "ended with exit code 3"
    assert describe_end(-9) == "was killed by SIGKILL"
    assert describe_end(-250) == "was killed by signal 250"


async def test_a_crashed_child_lives_again(roll: Roll) -> None:
    words = Words()
    async with supervisor(words, spec(roll, "a", "steady")) as house:
        first = (await roll.called())["a"]
        house.mark_ready("a")
        first.kill()
        await first.gone()
        second = (await roll.called())["a"]
        assert second.pid != first.pid
        assert house.children["a"].lives == 2
        assert words == ["a was killed by SIGKILL; it starts again now"]


async def test_who_was_not_told_to_stop_yet_lives_again_for_those_who_were(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "router", "stubborn"), spec(roll, "worker", "steady")) as house:
        lives = await roll.called(2)
        for life in lives.values():
            house.mark_ready(life.name)
            await life.up()
        draining = asyncio.create_task(house.drain([(("router",), 60.0), (("worker",), 60.0)]))
        await house.children["router"].stopping.wait()
        lives["worker"].kill()
        again = (await roll.called())["worker"]
        await again.up()
        lives["router"].kill()
        await draining
        await again.gone()
        assert house.children["worker"].lives == 2
    assert roll.calls.empty()


async def test_a_child_that_stops_as_told_lives_again_at_once_and_is_no_accident(roll: Roll) -> None:
    words = Words()
    house = Supervisor([spec(roll, "a", "steady")], words.say, environ=os.environ)
    async with house:
        for _ in range(4):
            life = (await roll.called())["a"]
            await life.up()
            house.mark_ready("a")
            os.kill(life.pid, signal.SIGTERM)
            await life.gone()
        await roll.called()
        assert words == ["a has stopped as told; it starts again now"] * 4
        assert house.children["a"].back_off == BackOff()


async def test_a_spare_takes_the_place_of_a_child_of_its_role(roll: Roll) -> None:
    words = Words()
    async with supervisor(words, spec(roll, "a", "steady"), spares=[spare(roll)]) as house:
        first = (await roll.called())["a"]
        assert roll.calls.empty(), "no spare before it is asked for"
        house.mark_ready("a")
        house.begin_spares()
        waiting = (await roll.called())["spare"]
        await waiting.up()
        first.kill()
        second = await waiting.became()
        assert (second.name, second.pid, house.children["a"].pid) == ("a", waiting.pid, waiting.pid)
        assert words == ["a was killed by SIGKILL; a spare takes its place now"]
        assert house.children["a"].lives == 2
        again = (await roll.called())["spare"]
        await again.up()
        second.kill()
        assert (await again.became()).name == "a"


async def test_spares_end_though_one_is_of_use_at_that_moment(roll: Roll) -> None:
    """`asyncio.wait_for` would take the cancellation for nothing, and another spare would begin."""
    of_use = asyncio.Event()

    async def up(name: str) -> None:
        await of_use.wait()

    async with supervisor(Words(), spec(roll, "a", "steady"), spares=[spare(roll)], up=up) as house:
        first, waiting = await with_spare(house, roll)
        await waiting.up()
        first.kill()
        await waiting.became()
        of_use.set()
    assert roll.calls.empty()


async def test_a_stopped_spare_takes_nobodys_place(roll: Roll) -> None:
    """It would hear nothing. It is killed, and the child starts anew at once."""
    words = Words()
    async with supervisor(words, spec(roll, "a", "steady"), spares=[spare(roll)]) as house:
        first, waiting = await with_spare(house, roll)
        await waiting.up()
        os.kill(waiting.pid, signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, waiting.pid, os.WSTOPPED | os.WNOWAIT)
        first.kill()
        second = (await roll.called())["a"]
        assert second.pid not in (first.pid, waiting.pid)
        assert words[0] == "a was killed by SIGKILL; it starts again now"
        await waiting.gone()


async def test_a_spare_that_took_a_place_and_says_nothing_is_killed(roll: Roll) -> None:
    """What took its place then began from nothing, and the one after that may be a spare again."""
    words = Words()

    async def heard(name: str) -> None:
        await asyncio.Event().wait()

    house = supervisor(words, spec(roll, "a", "steady"), spares=[spare(roll)], heard=heard, greets_within_s=0.0)
    async with house:
        first = (await roll.called())["a"]
        house.children["a"].ready_once = True  # of which nobody knows how long it took
        house.begin_spares()
        waiting = (await roll.called())["spare"]
        await waiting.up()
        first.kill()
        calls = await roll.called(2)
        await waiting.gone()
        assert house.children["a"].pid == calls["a"].pid != waiting.pid
        assert "the spare that took a's place is not heard of within 0 s" in words
        assert "a was killed by SIGKILL; it starts again now" in words[2]
        assert house.children["a"].takes_spares


async def test_a_spare_may_take_twice_as_long_as_who_began_from_nothing(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "a", "steady"), greets_within_s=0.0) as house:
        await roll.called()
        house.mark_ready("a")
        assert house._greets_within_s > 0.0


async def test_a_spare_of_another_role_is_left_alone(roll: Roll) -> None:
    words = Words()
    async with supervisor(words, spec(roll, "a", "steady"), spares=[spare(roll, role="other")]) as house:
        first, waiting = await with_spare(house, roll)
        first.kill()
        second = (await roll.called())["a"]
        assert second.pid not in (first.pid, waiting.pid)
        assert house.spares[0].pid == waiting.pid


async def test_a_spare_that_died_is_nobody(roll: Roll) -> None:
    """The child starts as if there had never been one; the next spare waits longer than any child."""
    words = Words()
    async with supervisor(words, spec(roll, "a", "steady"), spares=[spare(roll)]) as house:
        first, waiting = await with_spare(house, roll)
        waiting.kill()
        assert await words.first() == "the spare was killed by SIGKILL; the next one starts in 10 s"
        first.kill()
        assert set(await roll.called()) == {"a"}


@pytest.mark.parametrize("code", [2, 3])
async def test_a_spare_that_cannot_be_is_given_up_and_serving_is_not(roll: Roll, code: int) -> None:
    words = Words()
    refuses = ChildSpec("spare", "spare", (sys.executable, "-c", f"import sys; sys.exit({code})"))
    async with supervisor(words, spec(roll, "a", "steady"), spares=[SpareSpec(refuses, frozenset({"fake"}))]) as house:
        first = (await roll.called())["a"]
        house.mark_ready("a")
        house.begin_spares()
        assert await words.first() == f"the spare ended with exit code {code}; who dies starts anew without one"
        first.kill()
        assert set(await roll.called()) == {"a"}
        assert not house.gave_up.done()


async def test_draining_ends_the_spare_first(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "a", "steady"), spares=[spare(roll)]) as house:
        life = (await roll.called())["a"]
        await life.up()
        house.begin_spares()
        waiting = (await roll.called())["spare"]
        await house.drain([([], 0.0)])
        await waiting.gone()
        assert house.children["a"].pid == life.pid


async def test_a_child_that_was_ready_may_crash_more_often_than_a_new_one(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "a", "crash:2")) as house:
        for _ in range(FIRST_LIVES + 1):
            life = (await roll.called())["a"]
            await life.up()
            house.mark_ready("a")
            life.go()
            await life.gone()
        assert not house.gave_up.done()


@pytest.mark.parametrize("code", [2, 3])
async def test_a_child_that_refuses_its_settings_or_machine_ends_serving_at_once(roll: Roll, code: int) -> None:
    async with supervisor(Words(), spec(roll, "a", f"refuse:{code}")) as house:
        over = await house.gave_up
        assert over.exit_code == code
        assert over.reason == f"a ended with exit code {code} before it was ready"
        assert house.children["a"].lives == 1


async def test_a_child_that_never_becomes_ready_is_given_up_after_some_lives(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "a", "refuse:70")) as house:
        assert (await house.gave_up).exit_code == 70
        assert house.children["a"].lives == FIRST_LIVES


async def test_a_program_that_does_not_exist_ends_serving() -> None:
    words = Words()
    async with supervisor(words, ChildSpec("a", "fake", ("/nonexistent/program",))) as house:
        assert (await house.gave_up).exit_code == 3
        assert words == ["a cannot be started: No such file or directory"]


async def test_drain_stops_stage_after_stage(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "first", "steady"), spec(roll, "second", "steady")) as house:
        lives = await roll.called(2)
        for life in lives.values():
            await life.up()
        await house.drain([(["first"], 30.0)])
        await lives["first"].gone()
        assert house.children["second"].pid == lives["second"].pid
        await house.drain([(["second"], 30.0)])
        await lives["second"].gone()


async def test_a_stubborn_child_is_killed_when_its_seconds_are_over(roll: Roll) -> None:
    words = Words()
    async with supervisor(words, spec(roll, "a", "stubborn")) as house:
        life = (await roll.called())["a"]
        await life.up()
        await house.drain([(["a"], 0.05)])
        await life.gone()
    assert words == ["a did not stop within 0.05 s and is killed"]


async def test_leaving_kills_even_the_stubborn(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "a", "stubborn")):
        life = (await roll.called())["a"]
        await life.up()
    await life.gone()


async def test_leaving_at_once_leaves_nothing() -> None:
    sleeper = ChildSpec("a", "fake", (sys.executable, "-c", "import time; time.sleep(600)"))
    house = Supervisor([sleeper], Words().append, environ=os.environ, argv_for=lambda spec, fd: spec.argv)
    async with house:
        pass
    assert house.children["a"].pid is None


async def test_a_stopped_child_is_not_restarted(roll: Roll) -> None:
    async with supervisor(Words(), spec(roll, "a", "steady")) as house:
        life = (await roll.called())["a"]
        await life.up()
        await house.drain([(["a"], 30.0)])
        assert house.children["a"].lives == 1
