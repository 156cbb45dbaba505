"""Workers that pair over TCP, as on several hosts: no pidfd tells who is dead, and a broken stream proves nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quiesce.control import workers_file
from quiesce.control.address import TcpAddress
from quiesce.control.dialing import connect
from quiesce.control.dispatch_codec import decode_worker_frame
from quiesce.control.handshake import offer
from quiesce.control.stream import FrameStream
from quiesce.errors import HandshakeRefused
from quiesce.ids import Peer, mint_incarnation
from quiesce.protocol.dispatch import ROUTER, Attach, Welcome, WorkerFrame
from quiesce.trust.certificates import Leaf, make_certificates
from quiesce.worker.greeting import hello_of
from tests.control.trial import HERE, directory, shows

from .asking import BOTH, is_empty
from .house import Member
from .rig import prompt_ids
from .tcp_house import TcpHouse


@pytest.fixture(params=["tls", "insecure"])
async def either(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[TcpHouse]:
    house = TcpHouse(directory, secure=request.param == "tls")
    yield house
    await house.close()


LATE_WRITES = "quiesce_refused_writes_total", 'reason="not_leased"'
FENCED_CONNECTIONS = "quiesce_refused_data_connections_total", 'reason="fenced"'


def life_of(member: Member[Any]) -> Peer:
    return Peer(0, member.worker.parts.incarnation)


# ---------------------------------------------------------------- hand-offs


async def test_a_hand_off_over_tcp_is_the_answer_of_one_engine(either: TcpHouse) -> None:
    await either.prefill()
    await either.decode()
    await either.serves()


async def test_a_stream_that_breaks_in_a_transfer_frees_by_fence_and_comes_again(hosts: TcpHouse) -> None:
    """Decode shuts its door for the attempt; the late write is refused, and nobody waits for a proof of death."""
    prefill = await hosts.prefill()
    await hosts.decode()
    ask = await hosts.held(prefill, prompt_ids(14))
    hosts.cables["prefill-0"].cut()
    for worker in BOTH:
        assert await ask.end(worker) == "stream_lost"
    await hosts.desk.shows("decode-0", is_empty)
    assert (await hosts.desk.snapshot("prefill-0")).pages["held"] == 4
    prefill.writes.let_go()
    await hosts.empty()
    assert await hosts.desk.metric("decode-0", "quiesce_releases_total", 'proof="fenced"') == 1
    assert await hosts.desk.metric("decode-0", *LATE_WRITES) == 1
    await hosts.desk.paired("decode-0", "prefill-0")
    await hosts.serves()


def renew_decode(place: Path) -> None:
    """By the CA that is there."""
    for end in ("pem", "key"):
        (place / f"decode-0.{end}").unlink()
    make_certificates(place, [Leaf("decode-0", "decode/decode-0", HERE)], days=1)


async def test_a_worker_whose_certificate_is_renewed_pairs_again_in_the_same_life(
    hosts: TcpHouse, tmp_path: Path
) -> None:
    for name in ("ca.pem", "ca.key", "decode-0.pem", "decode-0.key"):
        shutil.copy(directory("ours") / name, tmp_path / name)
    await hosts.prefill()
    own: Any = {"tls_cert": f"{tmp_path}/decode-0.pem", "tls_key": f"{tmp_path}/decode-0.key"}
    decode = await hosts.decode(**own)
    life = life_of(decode)
    renew_decode(tmp_path)
    hosts.cables["prefill-0"].cut()
    await hosts.desk.until(lambda: hosts.desk.peers["decode-0"] == ())
    await hosts.desk.paired("decode-0", "prefill-0")
    assert life_of(decode) == life
    await hosts.serves()


async def test_a_frozen_network_loses_nothing_that_is_not_given_up(hosts: TcpHouse) -> None:
    await hosts.prefill()
    await hosts.decode()
    cable = hosts.cables["prefill-0"]
    cable.freeze()
    ask = hosts.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await hosts.desk.shows("decode-0", lambda view: len(view.rooms) == 1)
    cable.thaw()
    await ask.answers(6)
    await hosts.empty()


async def test_an_abort_in_a_frozen_network_is_fenced_and_the_late_write_refused(hosts: TcpHouse) -> None:
    prefill = await hosts.prefill()
    await hosts.decode()
    ask = await hosts.held(prefill, prompt_ids(14))
    hosts.cables["prefill-0"].freeze()
    hosts.desk.cancel(ask, "decode-0")
    await hosts.desk.shows("decode-0", is_empty)
    prefill.writes.let_go()
    hosts.cables["prefill-0"].thaw()
    await hosts.empty()
    await prefill.writes.landed()
    assert await hosts.desk.metric("decode-0", *LATE_WRITES) == 1
    await hosts.serves()


# ---------------------------------------------------------------- lives


async def test_a_replaced_prefill_life_may_write_no_more(hosts: TcpHouse) -> None:
    """It may live on behind a partition: its write meets a shut door, which counts it, and its successor serves."""
    first = await hosts.prefill()
    decode = await hosts.decode()
    ask = await hosts.held(first, prompt_ids(14))
    await hosts.prefill()
    assert await ask.end("decode-0") in {"stream_lost", "prefill_lost"}
    await hosts.desk.paired("decode-0", "prefill-0")
    assert decode.worker.intake.is_shut_out(life_of(first))
    first.writes.let_go()
    assert await first.quiet()
    assert await hosts.desk.metric("decode-0", *FENCED_CONNECTIONS) == 1
    await hosts.serves()
    hello = hello_of(first.worker.parts, decode.worker.intake.capabilities)
    assert "was fenced" in decode.worker.streams._why_not(TcpAddress("h", 1), hello)


async def test_a_replaced_decode_life_is_heard_no_more(hosts: TcpHouse) -> None:
    await hosts.prefill()
    first = await hosts.decode()
    await hosts.decode()
    await hosts.serves()
    prefill = hosts.members["prefill-0"]
    assert life_of(first) in prefill.worker.streams._replaced
    hello = hello_of(first.worker.parts, first.worker.intake.capabilities)
    address = TcpAddress("127.0.0.1", hosts._listeners[0].address.port)
    sock = await connect(address, security=shows("decode-0"))
    with pytest.raises(HandshakeRefused, match="a later life of this worker has joined"):
        await offer(sock, hello, lambda theirs: first.worker.intake.describe(Peer(0, theirs.incarnation)))
    assert await hosts.desk.metric("prefill-0", "quiesce_refused_peers_total") > 0
    await hosts.serves()


# ---------------------------------------------------------------- who may do what


async def test_only_a_routers_certificate_dispatches(hosts: TcpHouse) -> None:
    await hosts.prefill()
    address = hosts._listeners[0].address
    for name, welcomed in (("decode-0", False), ("router", True)):
        sock = await connect(address, security=shows(name))
        stream: FrameStream[WorkerFrame] = FrameStream(sock, decode_worker_frame, "prefill-0")
        stream.send(Attach(ROUTER))
        async with asyncio.timeout(20):
            assert isinstance(await stream.receive(), Welcome) is welcomed
        stream.close()


# ---------------------------------------------------------------- who there is


async def test_peers_follow_the_workers_file(hosts: TcpHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is named joins; one that is named no more gets nothing new, and ends what it has begun."""
    monkeypatch.setattr(workers_file, "LOOK_S", 0.005)
    file, fresh = tmp_path / "workers.toml", tmp_path / "fresh"
    file.write_text("")
    prefill = await hosts.prefill()
    await hosts.decode(peers=(), workers_file=str(file))
    fresh.write_text(f'[prefill]\nprefill-0 = "{hosts.address_of("prefill-0")}"\n')
    fresh.replace(file)
    await hosts.desk.paired("decode-0", "prefill-0")
    ask = await hosts.held(prefill, prompt_ids(14))
    fresh.write_text("")
    fresh.replace(file)
    await hosts.desk.until(lambda: hosts.desk.peers["decode-0"] == ())
    refused = hosts.desk.ask(prompt_ids(14, 2), "decode-0", max_tokens=6)
    assert await refused.end("decode-0") == "pair_unavailable"
    prefill.writes.let_go()
    await ask.answers(6)
    await hosts.empty()


# ---------------------------------------------------------------- decode reads

PULL: dict[str, Any] = {"transfer": "pull"}


async def test_decode_reads_as_it_is_written_to(either: TcpHouse) -> None:
    await either.prefill(**PULL)
    await either.decode(**PULL)
    await either.serves()
    assert await either.desk.metric("decode-0", "quiesce_reads_total", 'outcome="landed"') == 1


async def test_a_replaced_decode_life_reads_no_more(hosts: TcpHouse) -> None:
    """It may live on behind a partition, with its read under way: its window is closed, and its successor serves."""
    await hosts.prefill(**PULL)
    first = await hosts.decode(**PULL)
    first.writes.hold()
    hosts.desk.ask(prompt_ids(14), *BOTH, max_tokens=6)
    await first.writes.held()
    await hosts.decode(**PULL)
    await hosts.desk.shows("prefill-0", is_empty)
    outlet = hosts.members["prefill-0"].worker.outlet
    assert outlet._transport.is_dead(life_of(first))
    first.writes.let_go()
    assert await first.quiet()
    assert await hosts.desk.metric("prefill-0", *FENCED_CONNECTIONS) == 1
    await hosts.serves()


async def test_a_pool_is_described_to_one_process_of_a_life(hosts: TcpHouse) -> None:
    """Whoever else says HELLO for it while the first one does is refused, and is told nothing of the pool."""
    prefill = await hosts.prefill(**PULL)
    streams, life = prefill.worker.streams, Peer(0, mint_incarnation())
    descriptor, _ = streams._describe(life, "process 1")
    assert streams._describe(life, "process 1")[0] == descriptor
    with pytest.raises(HandshakeRefused, match="belongs to another process"):
        streams._describe(life, "process 2")
