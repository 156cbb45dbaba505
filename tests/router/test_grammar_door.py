"""The process that tries grammars out: what explodes there harms nobody."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quiesce.api.formats import Grammar
from quiesce.errors import RequestRejected
from quiesce.router.grammar_door import GrammarDoor
from quiesce.text.grammar_checker import Job, Verdict

PLAIN = Grammar("regex", "[a-z]+", "guided_regex")
BOMB = Grammar("json", json.dumps({"type": "integer", "multipleOf": 99_999_989}), "guided_json")
"""Takes minutes and gigabytes to compile."""


@pytest.fixture
async def door() -> AsyncIterator[GrammarDoor]:
    door = GrammarDoor("tiny")
    yield door
    await door.close()


async def refusal(door: GrammarDoor, asked: Grammar) -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        await door.grammar(asked)
    return caught.value


def pids(parent: int = os.getpid()) -> list[int]:
    """Of the processes that check grammars among this one's children."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    return [int(pid) for pid in children if b"grammar_checker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_a_grammar_comes_back_as_workers_take_it(door: GrammarDoor) -> None:
    assert pids() == []
    assert "[a-z]+" in await door.grammar(PLAIN)
    assert "yes" in await door.grammar(Grammar("choice", '["yes"]', "guided_choice"))
    assert len(pids()) == 1


async def test_what_is_none_names_its_parameter(door: GrammarDoor) -> None:
    error = await refusal(door, Grammar("regex", "(" * 3000, "structured_outputs"))
    assert (error.status, error.code, error.param) == (400, "invalid_grammar", "structured_outputs")
    assert error.message.startswith("structured_outputs cannot be followed: ")
    assert len(error.message) < 400


@pytest.mark.slow
async def test_what_explodes_is_refused_and_nobody_is_harmed(door: GrammarDoor) -> None:
    """It ends by CPU time that the kernel counts; who waits behind it is answered, by the same process."""
    await door.grammar(PLAIN)
    before = pids()
    bomb, behind = await asyncio.gather(refusal(door, BOMB), door.grammar(Grammar("regex", "x", "regex")))
    assert (bomb.status, bomb.code, bomb.param) == (400, "invalid_grammar", "guided_json")
    assert "too much time or memory" in bomb.message
    assert behind
    assert pids() == before
    assert pids(before[0]) == []


async def test_a_grammar_that_would_not_fit_a_frame_is_refused(door: GrammarDoor) -> None:
    """Written in JSON, control characters become six times as long."""
    error = await refusal(door, Grammar("regex", "\x01" * 60_000, "regex"))
    assert (error.status, error.code, error.param) == (400, "invalid_grammar", "regex")


async def test_a_process_that_was_killed_is_followed_by_another(door: GrammarDoor) -> None:
    await door.grammar(PLAIN)
    [first] = pids()
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(60):
        while True:  # whoever asks while it dies is told that it was too much
            try:
                await door.grammar(Grammar("regex", os.urandom(8).hex(), "regex"))
                break
            except RequestRejected as error:
                assert "too much" in error.message  # noqa: PT017
    assert pids() != [first]
    assert len(pids()) == 1


async def test_a_client_that_leaves_does_not_part_questions_from_answers(door: GrammarDoor) -> None:
    leaving = asyncio.ensure_future(door.grammar(Grammar("regex", "first", "regex")))
    await asyncio.sleep(0)
    staying = asyncio.ensure_future(door.grammar(Grammar("regex", "second", "regex")))
    await asyncio.sleep(0)
    leaving.cancel()
    assert "second" in await staying
    assert "first" in await door.grammar(Grammar("regex", "first", "regex"))


class Held(GrammarDoor):
    """Its checker answers when it is told to."""

    def __init__(self) -> None:
        super().__init__("tiny")
        self.written: list[str] = []
        self.may_answer = asyncio.Semaphore(0)
        self.reached = asyncio.Semaphore(0)

    async def _answer_of(self, job: Job) -> Verdict:
        self.written.append(job.text)
        self.reached.release()
        await self.may_answer.acquire()
        return Verdict(job.text)

    def ask(self, text: str, tenant: str = "") -> asyncio.Task[str]:
        return asyncio.ensure_future(self.grammar(Grammar("regex", text, "regex"), tenant))

    async def answer(self, times: int) -> None:
        for _ in range(times):
            self.may_answer.release()
            await self.reached.acquire()


async def test_what_nobody_waits_for_any_more_is_never_asked() -> None:
    """Except for what is already under way: that is finished, and kept."""
    door = Held()
    begun, left, stays = door.ask("begun"), [door.ask(f"left{i}") for i in range(63)], door.ask("other", "bob")
    await door.reached.acquire()
    with pytest.raises(RequestRejected):
        await door.ask("one too many")
    for task in (begun, *left):
        task.cancel()
    await asyncio.gather(begun, *left, return_exceptions=True)
    behind = door.ask("behind")
    await door.answer(1)
    door.may_answer.release()
    assert await stays == "other"
    door.may_answer.release()
    assert await behind == "behind"
    assert await door.ask("begun") == "begun"
    assert door.written == ["begun", "other", "behind"]
    assert not door._lines


async def test_tenants_take_turns() -> None:
    door = Held()
    asked = [door.ask(f"alice{i}", "alice") for i in range(64)] + [door.ask(f"bob{i}", "bob") for i in range(2)]
    await door.reached.acquire()
    await door.answer(4)
    assert door.written == ["alice0", "bob0", "alice1", "bob1", "alice2"]
    await door.close()
    ends = await asyncio.gather(*asked, return_exceptions=True)
    assert len(door.written) == 5
    assert sum(isinstance(end, RequestRejected) and end.code == "shutting_down" for end in ends) == 61


async def test_so_many_wait_and_no_more(door: GrammarDoor) -> None:
    async def ask(number: int) -> str:
        try:
            return await door.grammar(Grammar("regex", f"x{number}", "regex"))
        except RequestRejected as error:
            return f"{error.status} {error.code}"

    answers = await asyncio.gather(*[ask(number) for number in range(70)])
    assert answers.count("503 overloaded") == 6


async def test_a_model_that_is_not_there_is_no_clients_fault() -> None:
    door = GrammarDoor("/no/such/model")
    error = await refusal(door, PLAIN)
    assert (error.status, error.code) == (503, "grammars_unavailable")
    await door.close()


ORPHAN = """
import asyncio, signal
from quiesce.api.formats import Grammar
from quiesce.router.grammar_door import GrammarDoor

async def main():
    door = GrammarDoor("tiny")
    await door.grammar(Grammar("regex", "a", "regex"))
    print(door._process.pid, flush=True)
    signal.pause()

asyncio.run(main())
"""


async def test_it_ends_with_a_router_that_was_killed() -> None:
    router = await asyncio.create_subprocess_exec(sys.executable, "-c", ORPHAN, stdout=asyncio.subprocess.PIPE)
    assert router.stdout is not None
    checker = os.pidfd_open(int(await router.stdout.readline()))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(checker, ended.set)
    router.kill()
    await router.wait()
    await asyncio.wait_for(ended.wait(), 60)
    asyncio.get_running_loop().remove_reader(checker)
    os.close(checker)


async def test_closing_leaves_no_process() -> None:
    door = GrammarDoor("tiny")
    await door.grammar(PLAIN)
    assert len(pids()) == 1
    waiting = asyncio.ensure_future(door.grammar(Grammar("regex", "y", "regex")))
    await asyncio.sleep(0)
    await door.close()
    assert pids() == []
    with pytest.raises(asyncio.CancelledError):
        await waiting
