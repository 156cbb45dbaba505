from __future__ import annotations

import contextlib
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.control.dispatch_codec import (
    MAX_PROMPT_LOGPROBS,
    MAX_PROMPT_TOKENS,
    decode_router_frame,
    decode_worker_frame,
)
from quiesce.control.frames import MAX_FRAME_BYTES, pack
from quiesce.errors import BadFrame
from quiesce.ids import Incarnation, RequestId, Room, mint_incarnation, mint_request_id, mint_room
from quiesce.protocol.dispatch import (
    Accepted,
    Attach,
    Cancel,
    Failed,
    Flush,
    Flushed,
    HandedOff,
    Inspect,
    Inspected,
    Load,
    PageRange,
    Peers,
    Ping,
    Pong,
    PromptTold,
    RoomView,
    RouterFrame,
    Sampling,
    Scrape,
    Scraped,
    Submit,
    Tokens,
    Trace,
    Traced,
    Welcome,
    WorkerFrame,
    WorkerSnapshot,
)
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Failure, Fault

REQUEST = RequestId("req-0123456789abcdef01234567")
FAILURE = Failure("context_length_exceeded", "too long", Fault.CLIENT, 400)
SUBMIT = Submit(
    REQUEST, Room(7), b"\1\0\0\0" * 3, Sampling(), prefill="prefill-0", timeout_s=5.0, stop_token_ids=(0, 2)
)
SNAPSHOT = WorkerSnapshot(
    worker="decode-0",
    role="decode",
    incarnation=Incarnation("a" * 32),
    pages={"free": 10, "held": 3},
    page_size=16,
    ranges=(PageRange(0, 9, "free"), PageRange(10, 12, "held", "req-1")),
    rooms=(RoomView("req-1", 1, "holding", 3, 0.5, ("drained from 0@aaaaaaaa",)),),
    running=1,
    waiting=0,
    routers=2,
)
WELCOME = Welcome("decode-0", "decode", Incarnation("a" * 32), "tiny", "f", 1024, 4096, 16, 64)

ROUTER_FRAMES: list[RouterFrame] = [
    Attach("router"),
    SUBMIT,
    msgspec.structs.replace(
        SUBMIT,
        max_tokens=1,
        timeout_s=None,
        sampling=Sampling(0.0, 1.0, 50, -5, grammar="x"),
        priority=-7,
        tells_prompt=True,
    ),
    msgspec.structs.replace(
        SUBMIT, sampling=Sampling(1.0, 1.0, 0, 1, 0.5, -2.0, 2.0, 1.5, 9, ((0, -100.0), (4_294_967_295, 100.0)), 20)
    ),
    Cancel(REQUEST, FAILURE),
    Scrape(0),
    Inspect(1),
    Ping(2),
    Flush(3),
    Trace(2),
]
WORKER_FRAMES: list[WorkerFrame] = [
    WELCOME,
    Peers(("prefill-0",)),
    Load(1, 2, 3, ready=False, reason="draining", queued=2),
    Accepted(REQUEST),
    Tokens(REQUEST, (0, 4_294_967_295), "stop", 12),
    Tokens(REQUEST, (5,), logprobs=(TokenLogprobs(-0.5, (5, 4_294_967_295), (-0.5, -9999.0)),)),
    Failed(REQUEST, FAILURE, rejected=True),
    HandedOff(REQUEST),
    PromptTold(REQUEST, 1, ()),
    PromptTold(REQUEST, 129, (TokenLogprobs(-0.5), TokenLogprobs(0.0, (5,), (-9999.0,)))),
    Scraped(3, "# HELP"),
    Inspected(4, SNAPSHOT),
    Pong(5),
    Flushed(6),
    Traced(6, ("1.0 decode <- nothing",)),
]


@pytest.mark.parametrize("frame", ROUTER_FRAMES, ids=lambda frame: type(frame).__name__)
def test_router_frames_come_back_as_sent(frame: RouterFrame) -> None:
    assert decode_router_frame(pack(frame)) == frame


@pytest.mark.parametrize("frame", WORKER_FRAMES, ids=lambda frame: type(frame).__name__)
def test_worker_frames_come_back_as_sent(frame: WorkerFrame) -> None:
    assert decode_worker_frame(pack(frame)) == frame


def test_every_frame_type_is_covered_here() -> None:
    assert {type(frame) for frame in ROUTER_FRAMES} == set(RouterFrame.__args__)
    assert {type(frame) for frame in WORKER_FRAMES} == set(WorkerFrame.__args__)


@pytest.mark.parametrize("failure", [{"code": "Not A Code"}, {"message": "x" * 4097}, {"status": 100}], ids=str)
def test_a_failure_that_could_not_travel_on_is_refused_here(failure: dict[str, Any]) -> None:
    """A worker passes a Cancel's failure to its peer: what the peer would call a bad frame must not get that far."""
    cancel = Cancel(REQUEST, msgspec.structs.replace(FAILURE, **failure))
    with pytest.raises(BadFrame):
        decode_router_frame(pack(cancel))


def test_what_we_mint_is_accepted() -> None:
    submit = msgspec.structs.replace(SUBMIT, request=mint_request_id(), room=mint_room())
    assert decode_router_frame(pack(submit)) == submit
    welcome = msgspec.structs.replace(WELCOME, incarnation=mint_incarnation())
    assert decode_worker_frame(pack(welcome)) == welcome


def test_the_longest_prompt_fits_a_frame_and_one_token_more_is_refused() -> None:
    longest = msgspec.structs.replace(SUBMIT, token_ids=bytes(4 * MAX_PROMPT_TOKENS))
    assert len(payload := pack(longest)) < MAX_FRAME_BYTES
    assert decode_router_frame(payload) == longest
    with pytest.raises(BadFrame, match="token_ids"):
        decode_router_frame(pack(msgspec.structs.replace(SUBMIT, token_ids=bytes(4 * MAX_PROMPT_TOKENS + 4))))


@pytest.mark.parametrize(
    "change",
    [
        {"request": ""},
        {"request": "a b"},
        {"request": "r\n"},
        {"request": "é"},
        {"request": "x" * 129},
        {"room": -1},
        {"room": 1 << 63},
        {"room": 1 << 64},
        {"token_ids": b"\1\0\0"},
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"stop_token_ids": (-1,)},
        {"stop_token_ids": (1 << 32,)},
        {"stop_token_ids": (1,) * 1025},
        {"prefill": "x" * 257},
        {"salt": "x" * 257},
        {"timeout_s": 0.0},
        {"timeout_s": -1.0},
        {"timeout_s": math.inf},
        {"timeout_s": math.nan},
        {"sampling": {"temperature": -0.1}},
        {"sampling": {"temperature": 100.1}},
        {"sampling": {"temperature": math.nan}},
        {"sampling": {"top_p": 0.0}},
        {"sampling": {"top_p": 1.01}},
        {"sampling": {"top_p": math.nan}},
        {"sampling": {"top_k": -1}},
        {"sampling": {"seed": 0.5}},
        {"sampling": {"min_p": 1.1}},
        {"sampling": {"min_p": math.nan}},
        {"sampling": {"presence_penalty": math.inf}},
        {"sampling": {"frequency_penalty": -101.0}},
        {"sampling": {"repetition_penalty": 0.0}},
        {"sampling": {"grammar": "x" * 262_145}},
        {"priority": 1_000_001},
        {"priority": -1_000_001},
        {"sampling": {"min_tokens": -1}},
        {"sampling": {"logit_bias": [[-1, 0.0]]}},
        {"sampling": {"logit_bias": [[1 << 32, 0.0]]}},
        {"sampling": {"logit_bias": [[1, math.nan]]}},
        {"sampling": {"logit_bias": [[1, 0.0]] * 1025}},
        {"sampling": {"logit_bias": [[1]]}},
        {"sampling": {"logprobs": -1}},
        {"sampling": {"logprobs": 21}},
        {"sampling": None},
        {"ignore_eos": 1},
    ],
    ids=str,
)
def test_submit_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    _refused_by_router_decoder(_changed(SUBMIT, change))


@pytest.mark.parametrize("field", ["request", "room", "token_ids", "sampling"])
def test_submit_without_a_field_is_refused(field: str) -> None:
    fields = _changed(SUBMIT, {})
    del fields[field]
    _refused_by_router_decoder(fields)


@pytest.mark.parametrize(
    "change",
    [
        {"failure": {"code": "", "message": "", "fault": "client"}},
        {"failure": {"code": "x", "message": "", "fault": "nobody"}},
        {"failure": {"code": "x", "message": "y" * 70_000, "fault": "client"}},
        {"failure": {"code": "x", "message": "", "fault": "client", "status": 99}},
        {"failure": {"code": "x", "message": "", "fault": "client", "status": 600}},
        {"request": "../x"},
    ],
    ids=lambda change: str(change)[:60],
)
def test_a_failure_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    _refused_by_router_decoder(_changed(Cancel(REQUEST, FAILURE), change))
    _refused_by_worker_decoder(_changed(Failed(REQUEST, FAILURE), change))


@pytest.mark.parametrize(
    ("frame", "change"),
    [
        (WELCOME, {"role": "router"}),
        (WELCOME, {"worker": ""}),
        (WELCOME, {"incarnation": "A" * 32}),
        (WELCOME, {"context_length": 0}),
        (WELCOME, {"page_size": 0}),
        (WELCOME, {"pool_tokens": -1}),
        (WELCOME, {"max_queue": -1}),
        (WELCOME, {"model_fingerprint": "x" * 257}),
        (Peers(()), {"prefills": [""]}),
        (Peers(()), {"prefills": ["p"] * 1025}),
        (Peers(()), {"troubles": [["p", "why"]] * 65}),
        (Peers(()), {"troubles": [["", "why"]]}),
        (Peers(()), {"troubles": [["p", "w" * 1025]]}),
        (Load(0, 0, 0), {"running": -1}),
        (Load(0, 0, 0), {"queued": -1}),
        (Load(0, 0, 0), {"free_tokens": 1 << 63}),
        (Load(0, 0, 0), {"reason": "x" * 70_000}),
        (Accepted(REQUEST), {"request": ""}),
        (HandedOff(REQUEST), {"request": " "}),
        (PromptTold(REQUEST, 1, ()), {"request": " "}),
        (PromptTold(REQUEST, 1, ()), {"start": 0}),
        (PromptTold(REQUEST, 1, ()), {"logprobs": [{"logprob": 0.5}]}),
        (PromptTold(REQUEST, 1, ()), {"logprobs": [{"logprob": -0.5}] * (MAX_PROMPT_LOGPROBS + 1)}),
        (Tokens(REQUEST, ()), {"token_ids": [-1]}),
        (Tokens(REQUEST, ()), {"token_ids": [1 << 32]}),
        (Tokens(REQUEST, ()), {"finish": "eos"}),
        (Tokens(REQUEST, ()), {"cached_tokens": -1}),
        (Tokens(REQUEST, (5, 6)), {"logprobs": [{"logprob": -0.5}]}),
        (Tokens(REQUEST, (5,)), {"logprobs": [{"logprob": 0.5}]}),
        (Tokens(REQUEST, (5,)), {"logprobs": [{"logprob": -0.5, "top_ids": [1]}]}),
        (Tokens(REQUEST, (5,)), {"logprobs": [{"logprob": -0.5, "top_ids": [-1], "top_logprobs": [-1.0]}]}),
        (Scraped(0, ""), {"serial": -1}),
        (Inspected(0, SNAPSHOT), {"serial": -1}),
        (Traced(0, ()), {"serial": -1}),
        (Traced(0, ()), {"lines": ["x"] * 4097}),
        (Traced(0, ()), {"lines": ["x" * 70_000]}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, msgspec.Struct) else str(value)[:60],
)
def test_worker_frames_out_of_bounds_are_refused(frame: WorkerFrame, change: dict[str, Any]) -> None:
    _refused_by_worker_decoder(_changed(frame, change))


@pytest.mark.parametrize(
    "change",
    [
        {"role": "?"},
        {"incarnation": ""},
        {"page_size": 0},
        {"running": -1},
        {"pages": {"free": -1}},
        {"pages": {"x" * 257: 1}},
        {"pages": {str(i): 1 for i in range(65)}},
        {"ranges": [{"first": 5, "last": 4, "state": "free"}]},
        {"ranges": [{"first": -1, "last": 4, "state": "free"}]},
        {"rooms": [{"request": "r", "attempt": 1, "state": "s", "pages": 1, "age_s": math.nan}]},
        {"rooms": [{"request": "r", "attempt": -1, "state": "s", "pages": 1, "age_s": 0}]},
        {"rooms": [{"request": "r", "attempt": 1, "state": "s", "pages": 1, "age_s": 0, "awaiting": ["x"] * 5000}]},
    ],
    ids=lambda change: str(change)[:60],
)
def test_a_snapshot_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    _refused_by_worker_decoder({"type": "inspected", "serial": 1, "snapshot": _changed(SNAPSHOT, change)})


@pytest.mark.parametrize("serial", [-1, 1 << 63])
def test_serials_are_bounded(serial: int) -> None:
    for kind in ("scrape", "inspect"):
        _refused_by_router_decoder({"type": kind, "serial": serial})


def test_frames_of_the_other_direction_are_refused() -> None:
    with pytest.raises(BadFrame):
        decode_router_frame(pack(WELCOME))
    with pytest.raises(BadFrame):
        decode_worker_frame(pack(SUBMIT))


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([*ROUTER_FRAMES, *WORKER_FRAMES]), st.data())
def test_a_frame_with_any_field_replaced_is_a_frame_or_a_bad_frame(frame: msgspec.Struct, data: st.DataObject) -> None:
    """Decoders raise BadFrame and nothing else."""
    fields = _changed(frame, {})
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(_JSON)
    for decode in (decode_router_frame, decode_worker_frame):
        with contextlib.suppress(BadFrame):
            decode(msgspec.msgpack.encode(fields))


@given(st.binary(max_size=100))
def test_garbage_is_a_bad_frame(payload: bytes) -> None:
    for decode in (decode_router_frame, decode_worker_frame):
        with pytest.raises(BadFrame):
            decode(payload)


def _changed(frame: msgspec.Struct, change: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(frame, builtin_types=(bytes,))
    return {**fields, **change}


def _refused_by_router_decoder(fields: dict[str, Any]) -> None:
    with pytest.raises(BadFrame):
        decode_router_frame(_packed(fields))


def _refused_by_worker_decoder(fields: dict[str, Any]) -> None:
    with pytest.raises(BadFrame):
        decode_worker_frame(_packed(fields))


def _packed(fields: dict[str, Any]) -> bytes:
    try:
        return msgspec.msgpack.encode(fields)
    except OverflowError:  # an integer that msgpack cannot hold cannot come either
        return b""
