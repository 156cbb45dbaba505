"""What the endpoints answer, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """Token counts; `prompt_tokens_details.cached_tokens` of the prompt came from a prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails

    @classmethod
    def of(cls, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> Usage:
        total = prompt_tokens + completion_tokens
        return cls(prompt_tokens, completion_tokens, total, PromptTokensDetails(cached_tokens))


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that might have been said. `bytes` are its own; they need not be whole characters, as in `token`."""

    token: str
    logprob: float
    bytes: Sequence[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token that was said, by the model's own probabilities: before bias, penalties and temperature."""

    token: str
    logprob: float
    bytes: Sequence[int]
    top_logprobs: Sequence[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: Sequence[TokenLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct, frozen=True):
    """Of `/v1/completions`: lists with an entry per token; a token that is no whole text is `bytes:\\x..`.

    An echoed prompt's first token has no log probability.
    """

    text_offset: Sequence[int]
    token_logprobs: Sequence[float | None]
    tokens: Sequence[str]
    top_logprobs: Sequence[Mapping[str, float] | None]


class FunctionCall(msgspec.Struct, frozen=True):
    """`arguments` is the text of a JSON object; when the answer ended for its `length`, perhaps only its beginning."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the client is asked to make."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class AnswerMessage(msgspec.Struct, frozen=True):
    """`content` is null when the answer is nothing but calls; `tool_calls` is there only when there are some."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    tool_calls: Sequence[ToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True):
    message: AnswerMessage
    finish_reason: FinishReason
    index: int = 0
    logprobs: ChatLogprobs | None = None


class ChatCompletion(msgspec.Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: Sequence[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


class FunctionDelta(msgspec.Struct, frozen=True):
    """The next of the arguments' text, and with the first of it the function's name."""

    arguments: str
    name: str | msgspec.UnsetType = msgspec.UNSET


class ToolCallDelta(msgspec.Struct, frozen=True):
    """More of the call of this `index`. Its first delta bears `id`, `type` and the function's name."""

    index: int
    function: FunctionDelta
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: Literal["function"] | msgspec.UnsetType = msgspec.UNSET


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    tool_calls: Sequence[ToolCallDelta] | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    delta: Delta
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: ChatLogprobs | None = None


class ChatChunk(msgspec.Struct, frozen=True):
    """One event of a stream. `usage`, when asked for, is null until the last chunk, which has no choices."""

    id: str
    created: int
    model: str
    choices: Sequence[ChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class TextChoice(msgspec.Struct, frozen=True):
    text: str
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: TextLogprobs | None = None


class TextCompletion(msgspec.Struct, frozen=True):
    """The answer of `/v1/completions`, and each event of its stream."""

    id: str
    created: int
    model: str
    choices: Sequence[TextChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: Literal["text_completion"] = "text_completion"


class Model(msgspec.Struct, frozen=True):
    id: str
    created: int
    max_model_len: int | None = None
    owned_by: str = "quiesce"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True):
    data: Sequence[Model]
    object: Literal["list"] = "list"


class Tokenized(msgspec.Struct, frozen=True):
    """`token_strs` only when asked for."""

    tokens: Sequence[int]
    count: int
    max_model_len: int
    token_strs: Sequence[str] | None = None


class Detokenized(msgspec.Struct, frozen=True):
    prompt: str


class Objection(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker whose registration is refused, or, with `peer`, one that does not fit that worker. `since` is UTC."""

    worker: str
    reason: str
    peer: str = ""
    since: str = ""


class Partner(msgspec.Struct, frozen=True):
    """A prefill worker, and since when a decode worker serves with it, UTC."""

    worker: str
    since: str


class Serving(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decode worker that requests are sent to, or, without `peers`, one that does both halves. `since` is UTC.

    `transport` is how pages come to it. `more_peers` is how many prefill workers are not named.
    """

    worker: str
    since: str
    transport: str = ""
    peers: tuple[Partner, ...] = ()
    more_peers: int = 0


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of `/health`, `/readiness`, `/abort_request` and `/flush_cache`; `reason` says what is missing.

    `refused`, of `/readiness`: workers and pairs that are not used, whether or not others are. `serving`, of
    `/readiness?pairs`: those that are; `more_serving` is how many more workers there are. `unused`, beside it where
    others serve: workers that are known and cannot be used now.
    """

    status: str
    reason: str | None = None
    refused: tuple[Objection, ...] = ()
    serving: tuple[Serving, ...] = ()
    more_serving: int = 0
    unused: tuple[Objection, ...] = ()


class Version(msgspec.Struct, frozen=True):
    version: str


class ErrorDetail(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """`{"error": ...}`, alone or as an event that ends a stream."""

    error: ErrorDetail


def error_body(message: str, *, code: str, status: int, param: str | None = None) -> ErrorBody:
    return ErrorBody(ErrorDetail(message, _error_type(status), param, code))


def _error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    if status in (401, 403):
        return "authentication_error"
    return "invalid_request_error" if status < 500 else "server_error"
