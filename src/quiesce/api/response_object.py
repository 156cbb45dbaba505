"""What `/v1/responses` answers: a response with its items, and the events that tell how it comes about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    text: str
    annotations: Sequence[None] = ()
    logprobs: Sequence[None] = ()


class OutputMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """What the model says."""

    id: str
    status: ItemStatus
    content: Sequence[OutputText]
    role: Literal["assistant"] = "assistant"


class OutputCall(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    """A function that the client is asked to call; it answers with a `function_call_output` of the same `call_id`."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"


OutputItem = OutputMessage | OutputCall


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """What a response repeats of its request."""

    instructions: str | None
    max_output_tokens: int | None
    metadata: Mapping[str, str]
    parallel_tool_calls: bool
    temperature: float
    text: Mapping[str, Any]
    tool_choice: Any
    tools: Sequence[Mapping[str, Any]]
    top_p: float


class Response(Repeated, frozen=True, kw_only=True):
    """Nothing of it is kept here: `store` is always false. `usage` is null until the response is over."""

    id: str
    created_at: int
    model: str
    output: Sequence[OutputItem]
    status: ResponseStatus
    usage: ResponseUsage | None = None
    incomplete_details: IncompleteDetails | None = None
    error: None = None
    previous_response_id: None = None
    store: bool = False
    background: bool = False
    truncation: Literal["disabled"] = "disabled"
    object: Literal["response"] = "response"


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Numbered from 0 on within its stream."""

    sequence_number: int


class _OfResponse(_Event, frozen=True, kw_only=True):
    response: Response


class _OfItem(_Event, frozen=True, kw_only=True):
    output_index: int
    item: OutputItem


class _InItem(_Event, frozen=True, kw_only=True):
    output_index: int
    item_id: str


class _InText(_InItem, frozen=True, kw_only=True):
    content_index: int = 0


class Created(_OfResponse, frozen=True, kw_only=True, tag="response.created"):
    pass


class InProgress(_OfResponse, frozen=True, kw_only=True, tag="response.in_progress"):
    pass


class Completed(_OfResponse, frozen=True, kw_only=True, tag="response.completed"):
    pass


class Incomplete(_OfResponse, frozen=True, kw_only=True, tag="response.incomplete"):
    pass


class ItemAdded(_OfItem, frozen=True, kw_only=True, tag="response.output_item.added"):
    pass


class ItemDone(_OfItem, frozen=True, kw_only=True, tag="response.output_item.done"):
    pass


class PartAdded(_InText, frozen=True, kw_only=True, tag="response.content_part.added"):
    part: OutputText


class PartDone(_InText, frozen=True, kw_only=True, tag="response.content_part.done"):
    part: OutputText


class TextDelta(_InText, frozen=True, kw_only=True, tag="response.output_text.delta"):
    delta: str
    logprobs: Sequence[None] = ()


class TextDone(_InText, frozen=True, kw_only=True, tag="response.output_text.done"):
    text: str
    logprobs: Sequence[None] = ()


class ArgumentsDelta(_InItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_InItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    name: str
    arguments: str


class StreamFailed(_Event, frozen=True, kw_only=True, tag="error"):
    """Ends a stream: the response failed."""

    code: str
    message: str
    param: str | None


ResponseEvent = (
    Created | InProgress | ItemAdded | PartAdded | TextDelta | TextDone | PartDone | ArgumentsDelta | ArgumentsDone
    | ItemDone | Completed | Incomplete | StreamFailed
)  # fmt: skip
