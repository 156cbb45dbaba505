"""Many workers come or go at once: what that costs is counted, not timed."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce.control.address import Address
from quiesce.control.dialing import connect
from quiesce.control.frames import pack
from quiesce.control.registration_codec import decode_registrar_frame
from quiesce.control.stream import FrameStream
from quiesce.ids import mint_incarnation
from quiesce.protocol import hello as protocol_hello
from quiesce.protocol.dispatch import DISPATCH_VERSION
from quiesce.protocol.hello import Hello, known_mismatch
from quiesce.protocol.registration import Register, Registered, RegistrarFrame
from quiesce.router.matching import Matching
from tests.control.hellos import DECODE, PREFILL

from .door import Door

MANY = 64
"""Half of them decode: compared each with each at every event, they would be compared tens of thousands of times."""

Registration = FrameStream[RegistrarFrame]


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    with tempfile.TemporaryDirectory(prefix=f"q{secrets.token_hex(2)}") as directory:
        yield Door(Path(directory))


class Counted:
    """How often two HELLOs were compared, and the fleet was told where workers are."""

    def __init__(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._patch, self._door = monkeypatch, door
        self._count(protocol_hello, "mismatch")
        self._count(door.where, "say")

    def _count(self, owner: Any, name: str) -> None:
        true = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self.counts[name] += 1
            return true(*arguments)

        self._patch.setattr(owner, name, counted)


async def registered(door: Door, address: Address, number: int) -> Registration:
    template = PREFILL if number % 2 else DECODE
    name, life = f"{template.role}-{number}", mint_incarnation()
    hello = pack(msgspec.structs.replace(template, worker=name, incarnation=life, nonce=secrets.token_hex(16)))
    stream: Registration = FrameStream(await connect(address), decode_registrar_frame, "router")
    where = f"unix:{door.directory}/{number}.sock"
    stream.send(Register(DISPATCH_VERSION, template.role, name, life, where, "tiny", hello))
    return stream


async def until_counted(door: Door, outcome: str, count: int) -> None:
    async with asyncio.timeout(20):
        while door.counts[outcome] < count:  # noqa: ASYNC110 - a count awakes nobody
            await asyncio.sleep(0)
        for _ in range(20):  # what is left to be said of it
            await asyncio.sleep(0)


async def test_many_that_come_and_are_lost_at_once_are_compared_and_told_of_a_few_times(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(door, monkeypatch)
    async with door.opened() as address:
        streams = [await registered(door, address, number) for number in range(MANY)]
        for stream in streams:
            assert await stream.receive() == Registered(), "nobody has answered where it says that it is dialled"
        assert counted.counts["mismatch"] <= 4, "all decode workers are alike, and so are all prefill workers"
        assert len(door.fleet.links) == MANY
        counted.counts.clear()
        for stream in streams:
            stream.close()
        await until_counted(door, "lost", MANY)
    assert counted.counts["mismatch"] == 0
    assert 1 <= counted.counts["say"] <= 4


async def test_who_comes_is_answered_while_others_are_being_told(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round through all may be long, and a worker waits for its answer."""
    never = asyncio.Event()
    monkeypatch.setattr(door.registry, "_tell_all", never.wait)
    async with door.opened() as address:
        for number in range(3):
            async with asyncio.timeout(20):
                stream = await registered(door, address, number)
                assert await stream.receive() == Registered()
                stream.close()


def test_kinds_say_what_comparing_each_with_each_does() -> None:
    """Over workers that come, come again as another kind, and go."""
    rng, matching, here = random.Random(7), Matching(), dict[str, Hello]()
    for _ in range(400):
        template = rng.choice([DECODE, PREFILL])
        name = f"{template.role}-{rng.randrange(5)}"
        if rng.random() < 0.4:
            matching.leave(name)
            here.pop(name, None)
            continue
        changes = {"layout_fingerprint": rng.choice("ab"), "transport": rng.choice(["shm", "tcp"])}
        here[name] = msgspec.structs.replace(template, worker=name, nonce=secrets.token_hex(16), **changes)
        matching.enter(name, template.role, here[name])
        decodes, prefills = ([each for each in here.values() if each.role == role] for role in ("decode", "prefill"))
        each_with_each = itertools.product(decodes, prefills)
        wanted = {(d.worker, p.worker): why for d, p in each_with_each if (why := known_mismatch(d, p))}
        assert dict(matching.pairs()) == wanted
        for name in here:
            unfit = {pair[1] if pair[0] == name else pair[0]: pair for pair in wanted if name in pair}
            assert matching.unfit_with(name) == unfit.keys()
            assert all(matching.why(name, other) == wanted[pair] for other, pair in unfit.items())
