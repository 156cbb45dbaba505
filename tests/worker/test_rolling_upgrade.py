"""Two protocol versions in one deployment: they never pair, both sides say why in words, and old pairs serve on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quiesce.control.address import TcpAddress
from quiesce.control.connection import Connection
from quiesce.control.dialing import connect
from quiesce.control.frames import decoder_of, encode
from quiesce.control.handshake import Refusal
from quiesce.control.hello_codec import decode_first
from quiesce.control.single_frame import first_frame, read_frame, write_frame
from quiesce.control.tcp_listener import TcpListener, open_listener
from quiesce.protocol.hello import PROTOCOL_VERSION, Hello
from tests.control.trial import shows

from .tcp_house import TcpHouse

TOMORROW = PROTOCOL_VERSION + 1


def of_tomorrow(worker: str, role: str) -> dict[str, Any]:
    """HELLO as a later version may say it: other fields, other types, and the three that every version has."""
    return {"type": "hello", "version": TOMORROW, "worker": worker, "role": {"is": role}, "shards": [1, 2], "nonce": 7}


def reasons(caplog: pytest.LogCaptureFixture, message: str) -> set[str]:
    return {str(record.__dict__["ids"]["reason"]) for record in caplog.records if record.getMessage() == message}


async def test_a_decode_worker_of_tomorrow_is_told_why_and_the_old_pair_serves(
    hosts: TcpHouse, caplog: pytest.LogCaptureFixture
) -> None:
    await hosts.prefill()
    await hosts.decode()
    address = hosts._listeners[0].address
    for _ in range(2):
        sock = await connect(address, security=shows("decode-1"))
        await write_frame(sock, encode(of_tomorrow("decode-1", "decode")))
        refusal: Refusal = decoder_of(Refusal)(await read_frame(sock, []))
        sock.close()
        differs = f"protocol version differs: prefill-0 has {PROTOCOL_VERSION}, decode-1 has {TOMORROW}"
        assert refusal.reason == differs
        await hosts.serves()
    assert reasons(caplog, "a decode worker was not joined") == {differs}
    told = [record for record in caplog.records if record.getMessage() == "a decode worker was not joined"]
    assert len(told) == 1, "said once"
    assert await hosts.desk.metric("prefill-0", "quiesce_refused_peers_total") == 2


class PrefillOfTomorrow:
    """It reads a HELLO of today and answers with one of its own time."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    async def serve(self, sock: Connection) -> None:
        assert isinstance(await first_frame(sock, decode_first), Hello)
        await write_frame(sock, encode(of_tomorrow("prefill-1", "prefill")))
        refusal: Refusal = decoder_of(Refusal)(await read_frame(sock, []))
        self.heard.put_nowait(refusal.reason)


async def test_a_prefill_worker_of_tomorrow_is_told_why_and_the_old_pair_serves(hosts: TcpHouse) -> None:
    await hosts.prefill()
    tomorrow = PrefillOfTomorrow()
    listener = await open_listener(TcpAddress("127.0.0.1", 0), tomorrow.serve, shows("prefill-1"))
    assert isinstance(listener, TcpListener)
    hosts._ports["prefill-1"] = listener.address.port
    await hosts.decode(peers=("prefill-0", "prefill-1"))
    differs = f"protocol version differs: decode-0 has {PROTOCOL_VERSION}, prefill-1 has {TOMORROW}"
    assert await asyncio.wait_for(tomorrow.heard.get(), 20) == differs
    await hosts.desk.until(lambda: hosts.desk.troubles.get("decode-0") == (("prefill-1", differs),))
    await hosts.serves()
    assert await hosts.desk.metric("decode-0", "quiesce_refused_peers_total") > 0
    assert (await hosts.desk.snapshot("decode-0")).troubles == (("prefill-1", differs),)
    await listener.stop()


async def test_why_two_workers_do_not_fit_is_told_to_whoever_asks(hosts: TcpHouse) -> None:
    """And not any more once they do."""
    await hosts.prefill(payload_digest="blake2b")
    decode = await hosts.decode(peers=())
    decode.worker.where.say("test", {TcpAddress("127.0.0.1", hosts._ports["prefill-0"]): "prefill-0"})
    reason = (
        "payload digest setting differs: prefill-0 has blake2b, decode-0 has off: "
        "give both the same --landing, or the same --payload-digest"
    )
    await hosts.desk.until(lambda: hosts.desk.troubles.get("decode-0") == (("prefill-0", reason),))
    await hosts.prefill()
    await hosts.desk.paired("decode-0", "prefill-0")
    await hosts.desk.until(lambda: hosts.desk.troubles["decode-0"] == ())
    await hosts.serves()
