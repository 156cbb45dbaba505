"""HELLO finds out whether two workers fit before anything else is said."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from quiesce.protocol.hello import PROTOCOL_VERSION, Capabilities, Hello, OtherVersion, known_mismatch, mismatch
from quiesce.protocol.messages import OpenAttempts
from tests.protocol.scene import D0, ONE, P0

MINE = Hello(
    PROTOCOL_VERSION, "decode", "d0", D0.incarnation, 1, "m", "l", "off", "shm", Capabilities(drain_ack=True), "n"
)
THEIRS = replace(MINE, role="prefill", worker="p0", incarnation=P0.incarnation)


def test_workers_that_fit() -> None:
    assert mismatch(MINE, THEIRS) is None
    assert mismatch(replace(MINE, capabilities=Capabilities(fence=True)), THEIRS) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": 9}, "protocol version differs: d0 has 5, p0 has 9"),
        ({"model_fingerprint": "x"}, "model differs"),
        ({"layout_fingerprint": "x"}, "KV layout differs"),
        ({"payload_digest": "blake2b"}, "payload digest setting differs"),
        ({"transport": "tcp"}, "transport differs"),
        ({"transfer": "pull"}, "transfer differs: d0 has push, p0 has pull"),
        ({"ranks": 2}, "number of ranks differs: d0 has 1, p0 has 2"),
        ({"capabilities": Capabilities(authenticated=True)}, "neither drain_ack nor fence at p0"),
        ({"role": "decode"}, "both workers are decode"),
    ],
)
def test_what_does_not_fit_is_said(changed: dict[str, Any], words: str) -> None:
    assert words in str(mismatch(MINE, replace(THEIRS, **changed)))


def test_who_wants_pages_in_tls_alone_is_told_what_to_do() -> None:
    mine, theirs = replace(MINE, transport="tcp"), replace(THEIRS, transport="tcp+tls")
    for one, other in ((mine, theirs), (replace(MINE, transport="tcp+tls"), replace(THEIRS, transport="tcp"))):
        assert "or both --data-tls off" in str(mismatch(one, other))
    assert "data-tls" not in str(mismatch(mine, replace(theirs, transport="shm")))


def test_transport_that_proves_nothing_is_refused() -> None:
    assert "neither drain_ack nor fence" in str(mismatch(replace(MINE, capabilities=Capabilities()), THEIRS))


def test_decode_reads_only_where_both_ends_can() -> None:
    able = Capabilities(drain_ack=True, pull=True)
    mine, theirs = (replace(each, transfer="pull", capabilities=able) for each in (MINE, THEIRS))
    assert mismatch(mine, theirs) is None
    unable = replace(theirs, capabilities=Capabilities(drain_ack=True))
    assert mismatch(mine, unable) == "transport shm has no pull at p0: decode cannot read with it"


def test_closed_attempts() -> None:
    told = OpenAttempts(type(ONE)(5), (type(ONE)(3),))
    assert [told.is_closed(type(ONE)(number)) for number in (1, 3, 4, 5, 6)] == [True, False, True, False, False]


def test_a_third_one_says_no_more_than_it_knows() -> None:
    """Not that two fit which speak a version that it cannot read, nor that they do not."""
    changed = replace(THEIRS, layout_fingerprint="x")
    assert known_mismatch(MINE, changed) == mismatch(MINE, changed)
    assert known_mismatch(MINE, THEIRS) == ""
    later = OtherVersion(PROTOCOL_VERSION + 1, "p9")
    assert known_mismatch(MINE, later) == "protocol version differs: d0 has 5, p9 has 6"
    assert known_mismatch(later, replace(THEIRS, worker="p1")) == "protocol version differs: p9 has 6, p1 has 5"
    assert known_mismatch(later, OtherVersion(PROTOCOL_VERSION + 1, "d9")) == ""
    assert known_mismatch(None, MINE) == known_mismatch(MINE, None) == ""
