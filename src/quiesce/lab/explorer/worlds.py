"""Named worlds: together they make every pair of the protocol's features meet (`features`).

Two kinds: narrow ones say which faults may strike and how often; wide ones may have any fault (`ANY`), so many in all.
"""

from __future__ import annotations

from typing import Any

from quiesce.lab.explorer.config import RETRY, TWIN, A, B, Config, Req, config

NO_LIMIT = 10**9
ANY: dict[str, Any] = dict.fromkeys(
    (
        *("abort", "beat", "cancel", "clock", "close", "copy", "crash_d", "crash_p", "cut", "ended", "fail", "loss"),
        *("quiesced", "resend", "stray", "torn"),
    ),
    1,
)
SHARED: dict[str, Any] = {"requests": (A, RETRY), "pages": 3, "lease_pages": 2, "cache": True}
CHUNKS: dict[str, Any] = {"requests": (A,), "pages": 2, "lease_pages": 2, "chunks": 2}
CALLS = CHUNKS | {"pages": 4, "lease_pages": 4, "batch": 1}


def world(**given: Any) -> Config:
    """A Config of which every state is explored and healed."""
    return config(heal=1, limit=NO_LIMIT, **given)


def any_of(strike: int, **given: Any) -> Config:
    """A world in which any fault may strike, `strike` in all."""
    return world(faults=strike, **ANY, **given)


def dummy(*requests: Req) -> dict[str, Any]:
    """A second prefill rank, where nothing arrives."""
    return {"prefills": 2, "arrivals": tuple((0, each) for each in requests)}


NARROW = {
    "two prefill ranks say that they are at work": world(requests=(A,), prefills=2, beat=2, clock=1),
    "two prefill ranks, one crashes": world(requests=(A,), prefills=2, crash_p=1),
    "two prefill ranks, abort, failed write": world(requests=(A,), prefills=2, abort=1, fail=1),
    "old messages read again, reuse": world(abort=1, copy=1),
    "orphans: PUBLISH without request and vice versa": world(arrivals=((0, B),), abort=1, loss=1, clock=2),
    "a prompt says that it is at work": world(requests=(A,), beat=2, abort=1, loss=1, copy=1, clock=1),
    "room collision, abort, loss, failed write": world(abort=1, loss=1, fail=1),
    "fan-out, abort, loss": world(requests=(A,), ranks=2, abort=1, loss=1),
    "prefill crash, old writes fly, fence": world(requests=(A,), crash_p=1, abort=1, clock=1, fence=True),
    "shared prefix": world(**SHARED, abort=1),
    "a prompt in two chunks, at work, stream cut": world(**CHUNKS, beat=1, cut=1, clock=1),
    "decode crash, old writes fly": world(crash_d=1),
    "COMMITTED lost, messages read again": world(loss=1, copy=1),
    "room collision, fence, reuse": world(fail=1, clock=1, fence=True),
    "prefill crash, old writes fly": world(crash_p=1),
    "same room and same prompt": world(requests=(A, TWIN), abort=1),
    "shared prefix, failed write": world(**SHARED, fail=1),
    "fan-out, fence": world(requests=(A,), ranks=2, clock=1, fence=True),
    "fan-out, decode crash": world(requests=(A,), ranks=2, crash_d=1),
    "shared prefix, fan-out": world(**SHARED | {"requests": (A,)}, ranks=2, abort=1),
    "retry on a fresh room, failed_quiesced": world(requests=(A, RETRY), quiesced=1, ended=1),
    "messages re-sent": world(requests=(A,), abort=1, resend=2, loss=1),
    "old messages read twice again": world(requests=(A,), abort=1, copy=2),
    "two streams cut, abort": world(requests=(A,), cut=2, abort=1),
    "stream cut, failed write": world(requests=(A,), cut=1, fail=1, clock=1),
    "prefill ends by itself": world(ended=1, loss=1),
    "prefill crash, request sent again": world(requests=(A,), crash_p=1, abort=1, again=True),
    "prefill closes its endpoint": world(requests=(A,), close=1, abort=1, loss=1),
    "prefill closes its endpoint, reuse": world(close=1, fail=1),
    "both crash": world(requests=(A,), crash_d=1, crash_p=1),
    "two prefill ranks, one is a dummy": world(requests=(A,), prefills=2, arrivals=((0, A),), abort=1, loss=1),
    "room collision, fence": world(requests=(A,), abort=1, fail=1, clock=2, fence=True),
    "chunks in capped calls, window 1": world(
        **CHUNKS | {"pages": 4, "lease_pages": 4}, batch=1, window=1, abort=1, fail=1
    ),
    "chunks in capped calls, window 2": world(**CHUNKS | {"pages": 4, "lease_pages": 4}, batch=1, abort=1, quiesced=1),
    "no fault": world(),
}

WIDE = {
    "any two faults": any_of(2, requests=(A,)),
    "any two faults, fence": any_of(2, requests=(A,), fence=True),
    "staged landing, any two faults": any_of(2, requests=(A,), staged=True),
    "two prefill ranks, any fault": any_of(1, requests=(A,), prefills=2, fence=True),
    "two decode ranks, any fault": any_of(1, requests=(A,), ranks=2, fence=True),
    "a dummy, any fault": any_of(1, requests=(A,), **dummy(A)),
    "two chunks, any fault": any_of(1, **CHUNKS, batch=1, fence=True),
    "a room used again, any fault": any_of(1, sources=1),
    "equal rooms live at once, one without its request, any fault": any_of(
        1, requests=(A, TWIN), pages=2, arrivals=((0, A),), fence=True
    ),
    "shared prefix, any fault": any_of(1, **SHARED, sources=2),
    "three attempts, two rooms, one without its request, any fault": any_of(
        1, requests=(A, B, RETRY), arrivals=((0, A), (0, RETRY)), sources=1
    ),
}

THREE: dict[str, Any] = {"requests": (A, B, RETRY), "sources": 1}
SHAPES = {
    "equal rooms live at once, source pages used again": world(requests=(A, TWIN), pages=2, sources=1, abort=1),
    "a dummy, two decode ranks": world(requests=(A,), **dummy(A), ranks=2),
    "a dummy, three attempts in turn": world(**THREE, **dummy(A, B, RETRY), fence=True),
    "a dummy, equal rooms live at once, staged": world(
        requests=(A, TWIN), pages=2, **dummy(A, TWIN), fence=True, staged=True
    ),
    "a dummy, shared prefix, staged": world(**SHARED, **dummy(A, RETRY), staged=True),
    "a dummy, two chunks, staged": world(**CHUNKS, **dummy(A), staged=True, torn=1),
    "two decode ranks, three attempts in turn": world(**THREE, ranks=2, arrivals=((0, A),)),
    "two decode ranks, equal rooms live at once, staged": world(
        requests=(A, TWIN), pages=2, ranks=2, arrivals=((0, A),), staged=True
    ),
    "two decode ranks, two chunks, staged": world(**CHUNKS, ranks=2, staged=True, torn=1),
    "shared prefix in two chunks, equal rooms live at once": world(
        requests=(A, TWIN), pages=4, lease_pages=2, chunks=2, cache=True, fence=True
    ),
    "shared prefix, three attempts, two rooms live at once": world(
        requests=(A, TWIN, RETRY), pages=4, lease_pages=2, cache=True, arrivals=((0, A),), fence=True
    ),
    "three attempts in turn, two chunks, staged": world(
        requests=(A, B, RETRY), pages=2, lease_pages=2, chunks=2, sources=2, staged=True
    ),
    "shared prefix, a room used again, staged": world(**SHARED | {"requests": (A, B)}, staged=True, fence=True),
}

ANY_OF_PULL: dict[str, Any] = {name: 1 for name in (*ANY, "join", "rumour") if name != "stray"}
TWO_PAGES: dict[str, Any] = {"pages": 2, "lease_pages": 2, "batch": 1, "sources": 2}


def pulled(strike: int, **given: Any) -> Config:
    """The same where decode reads what prefill lends."""
    return world(pull=True, faults=strike, **ANY_OF_PULL, **given)


PULL = {
    "pull, any two faults": pulled(2, requests=(A,)),
    "pull, any two faults, windows revoked, deaths known": pulled(
        2, requests=(A,), fence=True, revoke=True, deaths=True
    ),
    "pull, a room used again, any fault": pulled(1, sources=1, deaths=True),
    "pull, a room used again, windows revoked, any fault": pulled(1, sources=1, revoke=True, fence=True),
    "pull, equal rooms live at once, any fault": pulled(1, requests=(A, TWIN), pages=2, sources=1, arrivals=((0, A),)),
    "pull, a dummy, any fault": pulled(1, requests=(A,), **dummy(A), revoke=True, deaths=True),
    "pull, several reads, any fault": pulled(1, requests=(A,), **TWO_PAGES, revoke=True, deaths=True),
}

KNOWN: dict[str, Any] = {"pull": True, "revoke": True, "deaths": True}
PULL_SHAPES = {
    "pull, two lenders, abort, failed read": world(pull=True, requests=(A,), prefills=2, abort=1, fail=1),
    "pull, two lenders, one crashes": world(**KNOWN, requests=(A,), prefills=2, crash_p=1),
    "pull, two decode ranks": world(**KNOWN, requests=(A,), ranks=2, faults=1, abort=1, fail=1, join=1, rumour=1),
    "pull, shared prefix": world(**KNOWN, **SHARED, sources=2, faults=1, abort=1, crash_d=1, join=1, rumour=1),
    "pull, three attempts, two rooms": world(
        **KNOWN, requests=(A, B, RETRY), sources=1, arrivals=((0, A), (0, RETRY)), faults=1, ended=1, join=1, rumour=1
    ),
    "pull, equal rooms live at once, windows revoked": world(
        **KNOWN, requests=(A, TWIN), pages=2, sources=1, arrivals=((0, A),), abort=1, ended=1
    ),
    "pull, messages lost and read again": world(pull=True, sources=1, requests=(A,), loss=2, copy=1, abort=1),
    "pull, old messages read again, reuse": world(pull=True, sources=1, abort=1, copy=1),
    "pull, unknown reads, endpoint closed": world(pull=True, sources=1, fail=1, clock=1, fence=True),
    "pull, both crash": world(pull=True, requests=(A,), crash_d=1, crash_p=1, again=True),
    "pull, no fault": world(pull=True, sources=1),
}

SMALL = WIDE | PULL | NARROW | SHAPES | PULL_SHAPES

LARGER = {
    "pull, two lenders, any fault": pulled(1, requests=(A,), prefills=2, revoke=True),
    "pull, two decode ranks, any fault": pulled(1, requests=(A,), ranks=2, revoke=True),
    "pull, shared prefix, any fault": pulled(1, **SHARED, sources=2, revoke=True, deaths=True),
    "pull, three attempts, two rooms, any fault": pulled(
        1, requests=(A, B, RETRY), sources=1, arrivals=((0, A), (0, RETRY)), deaths=True
    ),
    "a dummy, two decode ranks, any fault": any_of(1, requests=(A,), **dummy(A), ranks=2),
    "a room used again, any two faults": any_of(2),
    "three attempts, two rooms, any fault": any_of(1, requests=(A, B, RETRY), sources=1),
    "equal rooms live at once, any fault": any_of(1, requests=(A, TWIN), pages=2, sources=1, fence=True),
    "old messages read twice again, reuse": world(abort=1, copy=2),
    "fan-out, failed write, fence": world(requests=(A,), ranks=2, fail=1, clock=1, fence=True),
    "shared prefix, room collision": world(**SHARED | {"requests": (A, B, TWIN)}),
    "shared prefix, decode crash": world(**SHARED, crash_d=1),
    "shared prefix, prefill crash": world(**SHARED, crash_p=1),
    "old messages read again, stream cut": world(requests=(A,), abort=1, copy=1, cut=1),
}
"""The largest first: who explores them side by side should not begin with the small ones."""

FULL = SMALL | LARGER
