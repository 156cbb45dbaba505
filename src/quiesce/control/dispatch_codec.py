"""Reading what the router and a worker say to each other: `dispatch`'s unions, with every field's bounds checked."""

from __future__ import annotations

from quiesce.control.bounds import (
    MAX_SECONDS,
    MAX_TEXT_CHARS,
    check_count,
    check_int,
    check_number,
    check_one_of,
    check_request_id,
    check_text,
)
from quiesce.control.frames import MAX_FRAME_BYTES, decoder_of
from quiesce.control.snapshot_bounds import ROLES, check_snapshot, check_troubles, check_welcome
from quiesce.errors import BadFrame
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
    Peers,
    Ping,
    Pong,
    PromptTold,
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
)
from quiesce.protocol.logprobs import MAX_TOP_LOGPROBS, TokenLogprobs, problem_with
from quiesce.protocol.wire import check_failure

__all__ = ["ROLES", "check_router_frame", "check_worker_frame", "decode_router_frame", "decode_worker_frame"]

TOKEN_BYTES = 4
MAX_PROMPT_TOKENS = 2_097_152
MAX_TOKEN_ID = (1 << 32) - 1
MAX_STOP_TOKENS = 1024
MAX_PEERS = 1024
MAX_TRACE_LINES = 4096
MAX_PROMPT_LOGPROBS = 1024
"""In one frame."""
MAX_BIASED_TOKENS = 1024
MAX_GRAMMAR_CHARS = 1 << 18
MAX_PRIORITY = 1_000_000
MAX_BIAS = 1000.0
MAX_PENALTY = 100.0
LEAST_REPETITION_PENALTY = 0.01

_decode_router_frame = decoder_of(RouterFrame)
_decode_worker_frame = decoder_of(WorkerFrame)


def decode_router_frame(payload: bytes) -> RouterFrame:
    """A frame from a router (or `inspect`). Raises BadFrame on a malformed one or a field out of bounds."""
    frame: RouterFrame = _decode_router_frame(payload)
    check_router_frame(frame)
    return frame


def decode_worker_frame(payload: bytes) -> WorkerFrame:
    """A frame from a worker. Raises BadFrame on a malformed one or a field out of bounds."""
    frame: WorkerFrame = _decode_worker_frame(payload)
    check_worker_frame(frame)
    return frame


def check_router_frame(frame: RouterFrame) -> None:
    match frame:
        case Submit():
            _check_submit(frame)
        case Cancel():
            check_request_id(frame.request)
            check_failure(frame.failure)
        case Attach():
            check_text("name", frame.name, least_chars=1)
        case Scrape() | Inspect() | Ping() | Trace() | Flush():
            check_int("serial", frame.serial)


def check_worker_frame(frame: WorkerFrame) -> None:
    match frame:
        case Tokens():
            _check_tokens(frame)
        case PromptTold():
            check_request_id(frame.request)
            check_int("start", frame.start, 1)
            check_count("logprobs", frame.logprobs, MAX_PROMPT_LOGPROBS)
            _check_logprobs(frame.logprobs)
        case Accepted() | HandedOff():
            check_request_id(frame.request)
        case Failed():
            check_request_id(frame.request)
            check_failure(frame.failure)
        case Load() | Peers() | Welcome():
            _check_standing(frame)
        case Pong() | Flushed():
            check_int("serial", frame.serial)
        case Scraped() | Inspected() | Traced():
            _check_answer(frame)


def _check_submit(frame: Submit) -> None:
    check_request_id(frame.request)
    check_int("room", frame.room)
    _check_token_bytes(frame.token_ids)
    _check_sampling(frame.sampling)
    if frame.max_tokens is not None:
        check_int("max_tokens", frame.max_tokens, 1)
    check_count("stop_token_ids", frame.stop_token_ids, MAX_STOP_TOKENS)
    for token_id in frame.stop_token_ids:
        check_int("stop_token_ids", token_id, 0, MAX_TOKEN_ID)
    check_text("prefill", frame.prefill)
    check_text("salt", frame.salt)
    if frame.timeout_s is not None:
        check_number("timeout_s", frame.timeout_s, 0, MAX_SECONDS, above=True)
    check_int("priority", frame.priority, -MAX_PRIORITY, MAX_PRIORITY)


def _check_token_bytes(token_ids: bytes) -> None:
    if len(token_ids) % TOKEN_BYTES:
        raise BadFrame(f"token_ids: {len(token_ids)} bytes are no array of uint32")
    if len(token_ids) > MAX_PROMPT_TOKENS * TOKEN_BYTES:
        raise BadFrame(f"token_ids: {len(token_ids) // TOKEN_BYTES} tokens; at most {MAX_PROMPT_TOKENS} are allowed")


def _check_sampling(sampling: Sampling) -> None:
    check_number("temperature", sampling.temperature, 0, 100)
    check_number("top_p", sampling.top_p, 0, 1, above=True)
    check_int("top_k", sampling.top_k)
    check_number("min_p", sampling.min_p, 0, 1)
    check_number("presence_penalty", sampling.presence_penalty, -MAX_PENALTY, MAX_PENALTY)
    check_number("frequency_penalty", sampling.frequency_penalty, -MAX_PENALTY, MAX_PENALTY)
    check_number("repetition_penalty", sampling.repetition_penalty, LEAST_REPETITION_PENALTY, MAX_PENALTY)
    check_int("min_tokens", sampling.min_tokens)
    check_count("logit_bias", sampling.logit_bias, MAX_BIASED_TOKENS)
    for token_id, bias in sampling.logit_bias:
        check_int("logit_bias", token_id, 0, MAX_TOKEN_ID)
        check_number("logit_bias", bias, -MAX_BIAS, MAX_BIAS)
    if sampling.logprobs is not None:
        check_int("logprobs", sampling.logprobs, 0, MAX_TOP_LOGPROBS)
    check_text("grammar", sampling.grammar, MAX_GRAMMAR_CHARS)


def _check_tokens(frame: Tokens) -> None:
    check_request_id(frame.request)
    for token_id in frame.token_ids:
        check_int("token_ids", token_id, 0, MAX_TOKEN_ID)
    check_one_of("finish", frame.finish, ("", "stop", "length"))
    check_int("cached_tokens", frame.cached_tokens)
    if len(frame.logprobs) not in (0, len(frame.token_ids)):
        raise BadFrame(f"logprobs: {len(frame.logprobs)} entries for {len(frame.token_ids)} tokens")
    _check_logprobs(frame.logprobs)


def _check_logprobs(logprobs: tuple[TokenLogprobs, ...]) -> None:
    for told in logprobs:
        if problem := problem_with(told, MAX_TOKEN_ID):
            raise BadFrame(f"logprobs: {problem} is out of bounds")


def _check_standing(frame: Load | Peers | Welcome) -> None:
    match frame:
        case Load():
            for field in ("running", "waiting", "free_tokens", "queued"):
                check_int(field, getattr(frame, field))
            check_text("reason", frame.reason, MAX_TEXT_CHARS)
        case Peers():
            check_count("prefills", frame.prefills, MAX_PEERS)
            for name in frame.prefills:
                check_text("prefills", name, least_chars=1)
            check_troubles(frame.troubles)
        case Welcome():
            check_welcome(frame)


def _check_answer(frame: Scraped | Inspected | Traced) -> None:
    check_int("serial", frame.serial)
    match frame:
        case Scraped():
            check_text("text", frame.text, MAX_FRAME_BYTES)
        case Inspected():
            check_snapshot(frame.snapshot)
        case Traced():
            check_count("lines", frame.lines, MAX_TRACE_LINES)
            for line in frame.lines:
                check_text("lines", line, MAX_TEXT_CHARS)
