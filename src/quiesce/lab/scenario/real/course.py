"""One course of a scenario, told by the explorer's world and by real processes side by side."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from quiesce.errors import UsageError
from quiesce.ids import AttemptKey
from quiesce.lab.client import Answer
from quiesce.lab.explorer.move import DECODE as AT_DECODE
from quiesce.lab.explorer.world import World
from quiesce.lab.gate import FailInFlight, Fire, Forge, Land, Let, Lose
from quiesce.lab.gate_socket import GateControl
from quiesce.lab.scenario.format import Step
from quiesce.lab.scenario.real.stage import DECODE, OTHERS, PATIENCE_S, VICTIMS, Stage
from quiesce.lab.scenario.replay import Story
from quiesce.protocol import invariants
from quiesce.protocol.attempt import Phase
from quiesce.protocol.dispatch import WorkerSnapshot
from quiesce.protocol.invariants import Flight
from quiesce.protocol.messages import Envelope
from quiesce.protocol.reasons import kind_of

STATES = {
    Phase.COMMITTED: {"committed"},
    Phase.HOLDING: {"holding"},
    Phase.QUARANTINED: {"quarantined"},
}
"""What a real decode worker calls the phases of an attempt; the others are `reserved` there."""

GIVEN_UP = (None, Phase.RELEASED)
"""Phases of attempts that a decode worker does not show any more."""

LAST_WORDS_S = 5.0
"""How long a client may still wait for its answer once the workers are quiet."""


class Asked:
    """A request of the scenario: its client, and what the workers call it."""

    def __init__(self, task: asyncio.Task[None], answer: Answer, began: asyncio.Event) -> None:
        self.task = task
        self.answer = answer
        self.began = began
        self.id = ""
        self.attempt = 0
        self.pages: frozenset[int] = frozenset()


class RealCourse:
    """Commands are carried out in the world and by the workers; after each, both must say the same of decode."""

    def __init__(self, stage: Stage, story: Story) -> None:
        self._stage = stage
        self._story = story
        self._victim = story.world.config.requests[-1].name
        self._served: set[str] = set()
        self.asked: dict[str, Asked] = {}

    async def tell(self, step: Step) -> None:
        before = self._story.world
        self._story.tell(step)
        if step.command.startswith("forge"):
            await self._stage.decode.order(Forge(self.asked[step.command.split()[2]].attempt))
        if self._story.label:
            await self._act(self._story.label, before)
            await self._stage.cluster.until(DECODE, self._is_alike, PATIENCE_S)

    # ------------------------------------------------------------ moves

    async def _act(self, label: Any, before: World) -> None:
        stage = self._stage
        match label:
            case "submit", str(name):
                await self._submit(name)
            case "arrive", _, str(name):
                await self._let_in(stage.prefill, name)
            case "compute", _, request, _:
                await _let(stage.prefill, "compute", request=self.asked[request].id)
            case ((("deliver" | "lose" | "deliver, copy stays") as how), Envelope() as message):
                await self._message(how, message)
            case "land", Flight() as flight, _:
                await self._land(flight, before)
            case "failed_in_flight", Flight() as flight:
                waits = await stage.prefill.waits("write", request=self.asked[flight.request].id, take=False)
                await stage.prefill.order(FailInFlight(waits.serial))
            case "abort", number:
                await self._leave(self._name(number))
            case "finish", number:
                await self.asked[self._name(number)].task
            case "clock", where, number, timer if where == AT_DECODE:
                await stage.decode.order(Fire(self.asked[self._name(number)].attempt, timer.name))
            case _:
                raise UsageError(f"Real processes cannot do this: {label[0]}.")

    def _name(self, number: Any) -> str:
        return self._story.names.attempt(self._story.world.receiver.incarnation, number)

    async def _submit(self, name: str) -> None:
        asked = await self._let_in(self._stage.decode, name)
        view = await self._stage.cluster.until(
            DECODE, lambda view: any(room.request == asked.id for room in view.rooms), PATIENCE_S
        )
        asked.attempt = next(room.attempt for room in view.rooms if room.request == asked.id)
        mine = (each for each in view.ranges if each.owner == asked.id)
        asked.pages = frozenset(page for each in mine for page in range(each.first, each.last + 1))

    async def _let_in(self, gate: GateControl, name: str) -> Asked:
        """One half of a request; the client asks when its first half is wanted."""
        if name not in self.asked:
            self.asked[name] = self._ask(VICTIMS if name == self._victim else OTHERS)
            self.asked[name].id = (await gate.waits("submit", take=False)).request
        await _let(gate, "submit", request=self.asked[name].id)
        return self.asked[name]

    def _ask(self, body: dict[str, Any]) -> Asked:
        answer, began = Answer(), asyncio.Event()

        async def read() -> None:
            async for _ in self._stage.client.pieces(body, answer):
                began.set()
            began.set()

        return Asked(asyncio.create_task(read()), answer, began)

    async def _message(self, how: str, message: Envelope) -> None:
        from_decode = message.open_attempts is not None
        gate = self._stage.prefill if from_decode else self._stage.decode
        key = AttemptKey(message.sender if from_decode else message.to, message.attempt)
        name = self._story.names.attempt(key.decode.incarnation, key.attempt)
        asked, stays = self.asked[name], how.endswith("copy stays")
        waits = await gate.waits("message", kind=kind_of(message.body), attempt=asked.attempt, take=not stays)
        await gate.order(Lose(waits.serial) if how == "lose" else Let(waits.serial, stays))
        if self._is_committed(name):
            self._served.add(name)
            await asked.began.wait()

    def _is_committed(self, name: str) -> bool:
        attempts = self._story.world.receiver.attempts.values()
        return any(each.request == name and each.phase is Phase.COMMITTED for each in attempts)

    async def _land(self, flight: Flight, before: World) -> None:
        """A write that lands where it may not leaves its tags out, as a torn one does: else decode sees them."""
        wild = any(str(flight) in wrong for wrong in invariants.no_wild_write(before.picture()))
        waits = await self._stage.prefill.waits("write", request=self.asked[flight.request].id)
        await self._stage.prefill.order(Land(waits.serial, torn=wild))
        await self._stage.prefill.landed(waits.serial)

    async def _leave(self, name: str) -> None:
        asked = self.asked[name]
        asked.task.cancel()
        with suppress(asyncio.CancelledError):
            await asked.task
        await _let(self._stage.decode, "cancel", request=asked.id)

    # ------------------------------------------------------------ both say the same

    def _is_alike(self, view: WorkerSnapshot) -> bool:
        """Decode's hand-offs are in the world's phases, and share pages where the world's do."""
        rooms = {room.request: room.state for room in view.rooms}
        phases = {str(each.request): each.phase for each in self._story.world.receiver.attempts.values()}
        return all(self._agrees(asked, phases.get(name), rooms) for name, asked in self.asked.items())

    def _agrees(self, asked: Asked, phase: Phase | None, rooms: dict[str, str]) -> bool:
        state = rooms.get(asked.id)
        if state is None:
            return phase in GIVEN_UP or (phase is Phase.COMMITTED and asked.task.done()) or not asked.attempt
        return phase is not None and state in STATES.get(phase, {"reserved"})

    def shared_pages(self) -> bool:
        """Whether two requests had a page in common."""
        pages = [asked.pages for asked in self.asked.values()]
        return sum(map(len, pages)) > len(frozenset().union(*pages))

    async def end(self) -> Answer | None:
        """Let everything go on; the victim's answer, if decode committed its hand-off while the story was told."""
        await self._stage.disarm()
        tasks = [asked.task for asked in self.asked.values()]
        forgotten = (await asyncio.wait(tasks, timeout=LAST_WORDS_S))[1] if tasks else ()
        for task in forgotten:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self.asked[self._victim].answer if self._victim in self._served else None


async def _let(gate: GateControl, what: str, *, request: str) -> None:
    waits = await gate.waits(what, request=request)
    await gate.order(Let(waits.serial))
