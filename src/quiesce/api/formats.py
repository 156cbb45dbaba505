"""The fields that say what form an answer must have: those of OpenAI, vLLM and SGLang, read into one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from quiesce.api.reading import invalid
from quiesce.errors import RequestRejected

MOST_GRAMMAR_BYTES = 64 << 10
"""Of one grammar as it was asked for, in UTF-8."""

SchemaObject = dict[str, msgspec.Raw]
GrammarText = Annotated[str, Meta(min_length=1, max_length=MOST_GRAMMAR_BYTES)]
Words = Annotated[list[Annotated[str, Meta(max_length=4096)]], Meta(min_length=1, max_length=1024)]


class JsonSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schema is always followed; `strict` adds nothing to it."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$(?!\n)")]
    schema: SchemaObject
    strict: bool | None = None
    description: str | None = None


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Any text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object", forbid_unknown_fields=True):
    """A JSON object. Say in the prompt that you want one, or the model may never come to its end."""


class JsonSchemaFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    """JSON that is valid under a schema."""

    json_schema: JsonSchema


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's name for the same: exactly one of these."""

    json: SchemaObject | GrammarText | None = None
    regex: GrammarText | None = None
    choice: Words | None = None
    grammar: GrammarText | None = None
    json_object: bool | None = None


class FormFields(msgspec.Struct, frozen=True, kw_only=True):
    """At most one of these. A regex matches the whole answer; a grammar is Lark or GBNF, found out by its looks."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaObject | GrammarText | None = None
    guided_regex: GrammarText | None = None
    guided_choice: Words | None = None
    guided_grammar: GrammarText | None = None
    json_schema: GrammarText | None = None
    regex: GrammarText | None = None
    ebnf: GrammarText | None = None


class Grammar(msgspec.Struct, frozen=True):
    """What an answer must match. `text` is a JSON schema, a regex, a JSON list of words, or Lark or GBNF.

    `param` is the field that it was asked for in.
    """

    kind: Literal["json", "regex", "choice", "grammar"]
    text: str
    param: str


_ANY_OBJECT = '{"type":"object"}'


def grammar_of(fields: FormFields) -> Grammar | None:
    """What was asked for; None for any text. Raises RequestRejected for more than one, or one that is too large."""
    found = [*_of_response_format(fields.response_format), *_of_structured_outputs(fields.structured_outputs)]
    found += _of_names(fields)
    if len(found) > 1:
        raise invalid(f"{found[0].param} and {found[1].param} both say what the answer must match.", found[1].param)
    for grammar in found:
        if len(grammar.text.encode()) > MOST_GRAMMAR_BYTES:
            raise too_large(grammar.param)
    return found[0] if found else None


def too_large(param: str) -> RequestRejected:
    message = f"{param} is too large to follow; at most {MOST_GRAMMAR_BYTES} bytes are read."
    return RequestRejected(message, code="invalid_grammar", param=param)


def _of_response_format(asked: ResponseFormat | None) -> Iterator[Grammar]:
    match asked:
        case JsonObjectFormat():
            yield Grammar("json", _ANY_OBJECT, "response_format")
        case JsonSchemaFormat(json_schema):
            yield Grammar("json", _written(json_schema.schema), "response_format")


def _of_structured_outputs(asked: StructuredOutputs | None) -> Iterator[Grammar]:
    if asked is None:
        return
    param = "structured_outputs"
    found = [*_of(param, asked.json, asked.regex, asked.choice, asked.grammar)]
    found += [Grammar("json", _ANY_OBJECT, param)] if asked.json_object else []
    if len(found) != 1:
        raise invalid(f"{param} needs one of json, regex, choice, grammar and json_object, and only one.", param)
    yield from found


def _of_names(fields: FormFields) -> Iterator[Grammar]:
    """vLLM's older names, and SGLang's."""
    yield from _of("guided_json", json=fields.guided_json)
    yield from _of("guided_regex", regex=fields.guided_regex)
    yield from _of("guided_choice", choice=fields.guided_choice)
    yield from _of("guided_grammar", grammar=fields.guided_grammar)
    yield from _of("json_schema", json=fields.json_schema)
    yield from _of("regex", regex=fields.regex)
    yield from _of("ebnf", grammar=fields.ebnf)


def _of(
    param: str,
    json: SchemaObject | str | None = None,
    regex: str | None = None,
    choice: list[str] | None = None,
    grammar: str | None = None,
) -> Iterator[Grammar]:
    if json is not None:
        yield Grammar("json", _written(json), param)
    if regex is not None:
        yield Grammar("regex", regex, param)
    if choice is not None:
        yield Grammar("choice", msgspec.json.encode(choice).decode(), param)
    if grammar is not None:
        yield Grammar("grammar", grammar, param)


def _written(schema: SchemaObject | str) -> str:
    return schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
