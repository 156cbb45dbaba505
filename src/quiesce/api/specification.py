"""`/openapi.json`: what is accepted and answered, made from the types that read and write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from quiesce.api import requests as asked
from quiesce.api import response_object as made
from quiesce.api import responses as answered
from quiesce.api.unsupported import UNSUPPORTED

_COMPONENTS = "#/components/schemas/"
_TYPES = (
    asked.ChatBody,
    asked.CompletionBody,
    asked.ResponseBody,
    asked.TokenizeBody,
    asked.DetokenizeBody,
    asked.AbortBody,
    answered.ChatCompletion,
    answered.ChatChunk,
    answered.TextCompletion,
    made.Response,
    made.ResponseEvent,
    answered.ModelList,
    answered.Model,
    answered.Tokenized,
    answered.Detokenized,
    answered.Version,
    answered.Status,
    answered.ErrorBody,
)
_STREAM = (
    "With `stream`: server-sent events, each with a `ChatChunk` or `TextCompletion` as its data, then `[DONE]`. "
    "An `ErrorBody` ends the stream too; no `[DONE]` follows it. The events of a response are named; its last one is "
    "`response.completed`, `response.incomplete` or `error`."
)
_EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
_IGNORED = (
    "Fields that are not listed here are ignored, unless they would change the answer: then they are refused by "
    "name with status 400 (`unsupported_parameter`). Today these are: "
)

CHAT_EXAMPLES: Mapping[str, dict[str, Any]] = {
    "a question": {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0},
    "two answers with alternatives": {
        "messages": [{"role": "user", "content": "Name a colour."}],
        "n": 2, "seed": 7, "logprobs": True, "top_logprobs": 3, "max_completion_tokens": 8,
    },
    "JSON under a schema": {
        "messages": [{"role": "user", "content": "Invent a person. Answer in JSON."}],
        "max_tokens": 64,
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": {
            "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"], "additionalProperties": False,
        }}},
    },
    "one of several words": {
        "messages": [{"role": "user", "content": "Is rain wet?"}], "structured_outputs": {"choice": ["yes", "no"]},
    },
    "a stream with token counts": {
        "messages": [{"role": "user", "content": "Count to five."}],
        "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 32,
    },
    "a tool": {
        "messages": [{"role": "user", "content": "Rain?"}],
        "tools": [{"type": "function", "function": {"name": "rain", "parameters": {"type": "object"}}}],
        "tool_choice": "auto", "parallel_tool_calls": False,
    },
    "one of the tools that are allowed": {
        "messages": [{"role": "user", "content": "Rain?"}], "max_tokens": 64,
        "tools": [{"type": "function", "function": {"name": name}} for name in ("rain", "snow")],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {
            "mode": "required", "tools": [{"type": "function", "function": {"name": "rain"}}],
        }},
    },
}  # fmt: skip
COMPLETION_EXAMPLES: Mapping[str, dict[str, Any]] = {
    "a text": {"prompt": "Once upon a time", "max_tokens": 32, "stop": ["\n"]},
    "how likely a text is": {"prompt": "Once upon a time", "max_tokens": 0, "echo": True, "logprobs": 1},
    "a batch of token ids": {"prompt": [[1, 2, 3], [4, 5]], "max_tokens": 8, "logprobs": 1},
    "a regex": {"prompt": "A date:", "guided_regex": " [0-9]{4}-[0-9]{2}-[0-9]{2}"},
    "a grammar": {"prompt": "A sum:", "guided_grammar": 'start: NUMBER ("+" NUMBER)+\nNUMBER: /[0-9]{1,3}/'},
    "how tokens are drawn": {
        "prompt": "Roses are", "temperature": 0.8, "min_p": 0.05, "repetition_penalty": 1.1, "logit_bias": {"7": -100},
        "min_tokens": 4, "max_tokens": 16, "echo": True,
    },
}  # fmt: skip
RESPONSE_EXAMPLES: Mapping[str, dict[str, Any]] = {
    "a question": {"input": "What is the capital of France?", "instructions": "Be brief.", "max_output_tokens": 16},
    "a tool and its result": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
            {"type": "function_call", "call_id": "call_1", "name": "rain", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "no"},
        ],
        "tools": [{"type": "function", "name": "rain", "parameters": {"type": "object"}}],
        "max_output_tokens": 16, "stream": True, "store": False, "metadata": {"for": "docs"},
    },
}  # fmt: skip
TOKENIZE_EXAMPLES: Mapping[str, dict[str, Any]] = {
    "a text": {"prompt": "Hello", "return_token_strs": True},
    "a chat": {"messages": [{"role": "user", "content": "Hello"}]},
}
ABORT_EXAMPLES: Mapping[str, dict[str, Any]] = {"a chat": {"rid": "chatcmpl-0123456789abcdef01234567"}}
DETOKENIZE_EXAMPLES: Mapping[str, dict[str, Any]] = {"token ids": {"tokens": [72, 105]}}


def specification(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_COMPONENTS + "{name}")
    schemas["CompletionBody"]["properties"]["prompt"] = _prompt_schema()
    schemas["TokenizeBody"]["anyOf"] = [{"required": ["prompt"]}, {"required": ["messages"]}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quiesce", "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "security": [{}, {"key": []}],
        "paths": _generating() | _ending() | _text() | _looking(),
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _generating() -> dict[str, Any]:
    chat = _post("Answer a conversation", asked.ChatBody, answered.ChatCompletion, CHAT_EXAMPLES)
    completion = _post("Complete a text", asked.CompletionBody, answered.TextCompletion, COMPLETION_EXAMPLES)
    response = _post("Answer a list of items; none of it is kept", asked.ResponseBody, made.Response, RESPONSE_EXAMPLES)
    bodies = ((chat, asked.ChatBody), (completion, asked.CompletionBody), (response, asked.ResponseBody))
    for operation, body in bodies:
        refused = [name for name in UNSUPPORTED if name not in body.__struct_fields__]
        operation["description"] = f"{_STREAM}\n\n{_IGNORED}{', '.join(refused)}."
        operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": _EVENT}
    return {
        "/v1/chat/completions": {"post": chat},
        "/v1/completions": {"post": completion},
        "/v1/responses": {"post": response},
    }


def _ending() -> dict[str, Any]:
    abort = _post("End a request that the same key began", asked.AbortBody, answered.Status, ABORT_EXAMPLES)
    abort["description"] = (
        "Its answer ends with the error `request_aborted`: the stream's last event, or a document with status 499. A "
        "request that is unknown, over, or another key's is a 404."
    )
    return {"/abort_request": {"post": abort}, "/flush_cache": {"post": _flush()}}


def _flush() -> dict[str, Any]:
    description = (
        "For the operator (`--admin-key`). Every worker forgets the prefixes it has cached; the answer comes when the "
        "pages are free, or is a 503 when requests still read some after half a minute."
    )
    return _get("Empty the prefix cache", answered.Status) | {"description": description}


def _text() -> dict[str, Any]:
    tokenize = _post("Turn text into token ids", asked.TokenizeBody, answered.Tokenized, TOKENIZE_EXAMPLES)
    detokenize = _post("Turn token ids into text", asked.DetokenizeBody, answered.Detokenized, DETOKENIZE_EXAMPLES)
    return {"/tokenize": {"post": tokenize}, "/detokenize": {"post": detokenize}}


def _looking() -> dict[str, Any]:
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    pairs = {"name": "pairs", "in": "query", "description": "Say who serves, too", "schema": {"type": "string"}}
    plain = {"200": {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    anything = {"200": {"description": "This document", "content": {"application/json": {"schema": {}}}}}
    return {
        "/v1/models": {"get": _get("The model that is served", answered.ModelList)},
        "/v1/models/{name}": {"get": _get("One model", answered.Model) | {"parameters": [name]}},
        "/version": {"get": _get("This server's version", answered.Version)},
        "/health": {"get": _get("Whether the router is up", answered.Status)},
        "/readiness": {
            "get": _get("Whether a request would be answered", answered.Status, (503,)) | {"parameters": [pairs]}
        },
        "/metrics": {"get": {"summary": "The router's and all workers' metrics", "responses": plain | _errors()}},
        "/openapi.json": {"get": {"summary": "What this server accepts and answers", "responses": anything}},
    }


def _get(summary: str, answer: type, also: tuple[int, ...] = ()) -> dict[str, Any]:
    """`also` are statuses at which the answer has the same type."""
    content = {"application/json": {"schema": _ref(answer)}}
    same = {str(status): {"description": "Not so", "content": content} for status in also}
    return {"summary": summary, "responses": {"200": {"description": "Yes", "content": content}, **same, **_errors()}}


def _post(summary: str, body: type, answer: type, examples: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    shown = {name: {"value": value} for name, value in examples.items()}
    given = {"required": True, "content": {"application/json": {"schema": _ref(body), "examples": shown}}}
    return _get(summary, answer) | {"requestBody": given}


def _errors() -> dict[str, Any]:
    return {
        "default": {"description": "An error", "content": {"application/json": {"schema": _ref(answered.ErrorBody)}}}
    }


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": _COMPONENTS + kind.__name__}


def _prompt_schema() -> dict[str, Any]:
    """The type allows token ids beside whole prompts in one list, the reader does not."""
    token_ids = msgspec.json.schema(asked.TokenIdList)
    several = {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, token_ids]}}
    return {"anyOf": [{"type": "string"}, token_ids, several]}
