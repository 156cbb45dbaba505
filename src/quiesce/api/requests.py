"""The request bodies, as typed JSON. `/openapi.json` is made from them.

Only fields that are acted upon are declared. `fields` decides what happens to all others.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from quiesce.api.formats import FormFields, JsonObjectFormat, JsonSchema, TextFormat

Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
TopP = Annotated[float, Meta(gt=0.0, le=1.0)]
TopK = Annotated[int, Meta(ge=-1, le=1 << 31)]
Count = Annotated[int, Meta(ge=1, le=1 << 31)]
Seed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
StopText = Annotated[str, Meta(min_length=1, max_length=512)]
Stops = Annotated[list[StopText], Meta(max_length=16)]
StopTokenIds = Annotated[list[TokenId], Meta(max_length=256)]
Seconds = Annotated[float, Meta(gt=0.0, le=86_400.0)]
TokenIdList = Annotated[list[TokenId], Meta(min_length=1)]
Choices = Annotated[int, Meta(ge=1, le=128, description="How many answers to one prompt.")]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Factor = Annotated[float, Meta(ge=0.01, le=100.0)]
Least = Annotated[int, Meta(ge=0, le=1 << 31)]
Alternatives = Annotated[int, Meta(ge=0, le=20)]
CacheSalt = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="Share cached prefixes only with requests that say the same.",
    ),
]
Priority = Annotated[
    int, Meta(ge=-1_000_000, le=1_000_000, description="The lower number is served earlier, as in vLLM; default 0.")
]
TokenIdText = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,8})$(?!\n)")]
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
LogitBias = Annotated[dict[TokenIdText, Bias], Meta(max_length=1024)]
FunctionName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$(?!\n)")]
CallId = Annotated[str, Meta(max_length=128)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`include_usage` asks for a last chunk with token counts, `continuous_usage_stats` for counts in every chunk.

    Nothing is ever obfuscated.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class Part(msgspec.Struct, frozen=True):
    """A piece of a message; only `type: text` is served."""

    type: str
    text: str | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """`arguments` is the text of a JSON object."""

    name: FunctionName
    arguments: str


class ToolCallBody(msgspec.Struct, frozen=True):
    """A call that the assistant made earlier."""

    function: CalledFunction
    id: CallId | None = None
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation. `tool_calls` are an assistant's; a tool's turn says with `tool_call_id` whose."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    tool_calls: Annotated[list[ToolCallBody], Meta(max_length=128)] | None = None
    tool_call_id: CallId | None = None
    name: str | None = None
    function_call: msgspec.Raw | None = None


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """`parameters` is a JSON schema. The model sees it, and is held to it where it must call; `strict` adds nothing."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct, frozen=True):
    """Only functions; the client runs them."""

    type: Literal["function"]
    function: Function


class FunctionNamed(msgspec.Struct, frozen=True):
    name: FunctionName


class NamedTool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    function: FunctionNamed


class AllowedList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of `tools` only these: the model decides (`auto`), or calls one of them (`required`)."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Meta(min_length=1, max_length=128)]


class AllowedTools(msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedList


Choice = Literal["none", "auto", "required"] | NamedTool | AllowedTools | None


class Body(FormFields, frozen=True, kw_only=True):
    """What both endpoints take. None (JSON null) is the same as absent."""

    model: str | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    n: Choices | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Factor | None = None
    logit_bias: LogitBias | None = None
    min_tokens: Least | None = None
    stop: StopText | Stops | None = None
    stop_token_ids: StopTokenIds | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timeout: Seconds | None = None
    priority: Priority | None = None
    cache_salt: CacheSalt | None = None


class ChatBody(Body, frozen=True, kw_only=True):
    """`max_completion_tokens` wins over `max_tokens`. `top_logprobs` needs `logprobs`, `tool_choice` needs `tools`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: Choice = None
    parallel_tool_calls: bool | None = None


class CompletionBody(Body, frozen=True, kw_only=True):
    """`prompt` is a text, token ids, or a list of such prompts. `logprobs` counts alternatives.

    With `echo`, `max_tokens` may be 0: the answer is the prompt, with `logprobs` how likely each of its tokens is. The
    prompt must leave room for one more token nevertheless.
    """

    max_tokens: Least | None = None
    prompt: str | Annotated[list[TokenId | str | TokenIdList], Meta(min_length=1)]
    logprobs: Alternatives | None = None
    echo: bool | None = None


class InputItem(msgspec.Struct, frozen=True):
    """A `message` (`role`, `content`), a `function_call` that was made, or its `function_call_output`."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None
    call_id: CallId | None = None
    name: FunctionName | None = None
    arguments: str | None = None
    output: str | list[Part] | None = None


class ResponseTool(msgspec.Struct, frozen=True):
    """Only functions; the client runs them."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedResponseTool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    name: FunctionName


class AllowedResponseTools(
    msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools", forbid_unknown_fields=True
):
    """Of `tools` only these: the model decides (`auto`), or calls one of them (`required`)."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedResponseTool], Meta(min_length=1, max_length=128)]


ResponseChoice = Literal["none", "auto", "required"] | NamedResponseTool | AllowedResponseTools | None


class FlatSchemaFormat(JsonSchema, frozen=True, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    """JSON that is valid under a schema."""


class TextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`format` is `response_format`, a level flatter. No model here takes a `verbosity` but `medium`."""

    format: TextFormat | JsonObjectFormat | FlatSchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponseStreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing is ever obfuscated."""

    include_obfuscation: bool | None = None


MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """`store` must be false or absent, which is the same here: no response is kept. None is the same as absent."""

    input: str | Annotated[list[InputItem], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    text: TextConfig | None = None
    tools: Annotated[list[ResponseTool], Meta(max_length=128)] | None = None
    tool_choice: ResponseChoice = None
    parallel_tool_calls: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Factor | None = None
    logit_bias: LogitBias | None = None
    min_tokens: Least | None = None
    stop: StopText | Stops | None = None
    stop_token_ids: StopTokenIds | None = None
    ignore_eos: bool | None = None
    timeout: Seconds | None = None
    cache_salt: CacheSalt | None = None
    priority: Priority | None = None


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Either `prompt`, or `messages` (with `tools`, if there are some) as a chat would render them."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None


class AbortBody(msgspec.Struct, frozen=True, kw_only=True):
    """`rid` is the `id` of the answer that shall end. `abort_all` instead of it is for the admin key."""

    rid: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    abort_all: bool | None = None


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    tokens: list[TokenId]
