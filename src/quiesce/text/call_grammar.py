"""The grammar of an answer that must call tools, in llguidance's Lark: what `tool_calls` reads, under their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from quiesce.text.schemas import without_idle
from quiesce.text.tool_calls import CallFormat

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as `json.dumps` writes it: a small model that may write spaces anywhere may write nothing else."""


def call_grammar(
    form: CallFormat,
    schemas: Mapping[str, Mapping[str, Any]],
    *,
    several: bool,
    special: Mapping[str, int],
    otherwise: Mapping[str, Any] | None = None,
) -> str:
    """One call of the functions that `schemas` has the parameters of, or `several` in a row.

    `special` are the ids of the model's special tokens: as text nobody can say them. With `otherwise` the answer may
    be JSON under that schema instead; not for bare formats, as the library goes by what the first characters may be.
    """
    before, between, after = _around(form, special)
    rules = [f"start: calls{' | otherwise' if otherwise is not None else ''}"]
    rules += [f"calls: {before} call{f' ({between} call)*' if several else ''} {after}"]
    if otherwise is not None:
        rules += [f"otherwise: %json {json.dumps(_spaced(otherwise))}"]
    rules += ["call: " + " | ".join(f"call{index}" for index in range(len(schemas)))]
    for index, (name, schema) in enumerate(schemas.items()):
        head = f'{{"name": {json.dumps(name)}, "{form.arguments}": '
        rules += [f'call{index}: {json.dumps(head)} arguments{index} "}}"']
        rules += [f"arguments{index}: %json {json.dumps(_object(schema))}"]
    return "\n".join(rules)


def _around(form: CallFormat, special: Mapping[str, int]) -> tuple[str, str, str]:
    """What stands before the first call, between two, and after the last one."""
    begins, ends = _written(form.begins, special), _written(form.ends, special)
    if form.bare:
        return "", '"; "', ""
    if form.opening == "[":
        return f'{begins} " ["', '", "', '"]"'
    return f'{begins} "\\n"', f'"\\n" {ends} "\\n" {begins} "\\n"', f'"\\n" {ends}'


def _written(tag: str, special: Mapping[str, int]) -> str:
    return f"<[{special[tag]}]>" if tag in special else json.dumps(tag)


def _object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments are an object, whatever else a schema has to say of them."""
    return _spaced(schema) | {"type": "object"}


def _spaced(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The library looks for `x-guidance` only here; a schema's own one could make it write what is no JSON."""
    told: dict[str, Any] = without_idle(dict(schema))
    return told | {"x-guidance": _SPACING}
