"""What a router says of prefill workers is what they said of themselves: one mistake is nobody else's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quiesce.control.address import TcpAddress, parse_address
from quiesce.control.dialing import connect
from quiesce.control.security import LOCAL, load_security
from quiesce.control.whereabouts import Places
from quiesce.errors import PeerUnusable
from quiesce.worker.peer_discovery import hear_of
from quiesce.worker.peer_lines import PeerLines
from quiesce.worker.settings import WorkerSettings


class Heard:
    def __init__(self) -> None:
        self.places: Places = {}

    def say(self, source: str, places: Places) -> None:
        self.places = places


def test_a_prefill_worker_that_cannot_be_reached_keeps_no_other_away(caplog: pytest.LogCaptureFixture) -> None:
    settings = WorkerSettings(role="decode", name="d", listen="tcp://127.0.0.1:1", transport="tcp", insecure=True)
    secured = load_security(None, None, None, insecure=True)
    parts: Any = SimpleNamespace(settings=settings, security=secured, lines=PeerLines())
    near, far = parse_address("tcp://127.0.0.1:2"), parse_address("tcp://10.0.0.2:3")
    heard = Heard()
    hear_of(parts, cast("Any", heard), "tcp://127.0.0.1:9", {near: "prefill-0", far: "prefill-1"})
    assert heard.places == {near: "prefill-0"}
    assert ["prefill-1" in str(record.__dict__) for record in caplog.records] == [True]


async def test_what_no_resolver_takes_is_a_peer_that_cannot_be_used() -> None:
    with pytest.raises(PeerUnusable, match="can be no host"):
        await connect(TcpAddress("a" * 64 + ".b", 80), security=LOCAL)
