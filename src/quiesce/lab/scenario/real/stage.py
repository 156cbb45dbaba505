"""Where scenarios are told for real: a cluster of workers that wait at gates, and a client."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

from quiesce.errors import PeerUnusable
from quiesce.lab.client import Answer, Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.gate import Arm, Disarm
from quiesce.lab.gate_socket import GateControl
from quiesce.protocol.dispatch import WorkerSnapshot

PREFILL, DECODE = "prefill-0", "decode-0"
PATIENCE_S = 120.0
"""How long workers may take to get where a story wants them; busy machines are slow."""

FLAGS = (
    *("--deterministic", "--decode-pool-tokens", "2048", "--context-length", "1024"),
    *("--transport", "shm", "--prefix-cache", "off"),  # who asks twice needs new pages the second time, too
    *("--max-prefill-tokens", "1024"),  # a prompt in one chunk
    *("--retries", "0"),  # a failed request is not asked again behind the story's back
    *("--call-deadline-s", "600", "--quarantine-budget", "1"),
    *("--hold-deadline-s", "1"),  # clocks wait at the gates, too; what can have no proof is waited for this long
)


def question(content: str, max_tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": max_tokens, "temperature": 0}


LINGER_S = 20.0
"""How long prefill may take to be quiet once decode is."""

OTHERS = question(
    "The patient's name is Maria Lopez and her diagnosis is diabetes. " * 6 + "Repeat what you know of Maria Lopez.",
    2,
)
"""What everybody asks but the last request of a scenario."""

VICTIMS = question("I live in a small village by the sea. " * 6 + "Tell me how rain forms, step by step.", 16)
"""What the last request of a scenario asks."""


class Stage:
    """`async with Stage(...)`: one prefill and one decode worker, ready. `solo` is the victim's answer when alone.

    `spoilt` says why nothing more should be told here, or "".
    """

    def __init__(self, *flags: str) -> None:
        self.cluster = Cluster(*FLAGS, *flags, environ={"QUIESCE_LAB": "gates"})
        self.solo = Answer()
        self.spoilt = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Stage:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            self.client = await stack.enter_async_context(Client(self.cluster.url))
            self.prefill, self.decode = [await self._gate(name, stack) for name in (PREFILL, DECODE)]
            self.solo = await self.client.ask(VICTIMS)
            self._stack = stack.pop_all()
        return self

    async def _gate(self, name: str, stack: AsyncExitStack) -> GateControl:
        gate = await GateControl.open(name, self.cluster.worker_socket(name))
        stack.callback(gate.close)
        return gate

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def arm(self, mutant: str) -> None:
        """From now on everything waits, and both workers leave out a rule."""
        await self.cluster.until(DECODE, is_quiet, PATIENCE_S)
        await asyncio.gather(*(gate.order(Arm(mutant)) for gate in (self.prefill, self.decode)))

    async def disarm(self) -> None:
        """Everything goes on; wait until nothing is held but what can have no proof any more.

        Workers that left out a rule may never get there: then the stage is `spoilt`.
        """
        try:
            for gate in (self.decode, self.prefill):
                gate.forget()
                await gate.order(Disarm())
            await self.cluster.until(DECODE, is_quiet, PATIENCE_S)
            await self.cluster.until(PREFILL, is_quiet, LINGER_S)
        except PeerUnusable as error:
            self.spoilt = str(error)


def is_quiet(view: WorkerSnapshot) -> bool:
    return not view.running and all(room.state in ("quarantined", "poisoned") for room in view.rooms)
