"""JSON schemas without what says nothing, which llguidance would refuse: it looks at keywords, not at their values."""

from __future__ import annotations

from typing import Any

_ANY: tuple[Any, ...] = (True, {})
_IDLE: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "unevaluatedItems": _ANY,
    "unevaluatedProperties": _ANY,
    "propertyNames": (*_ANY, {"type": "string"}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "not": (False,),
}
"""The values at which a keyword allows all that would be allowed without it."""

_PARTNERS = {
    "if": ("then", "else"),
    "then": ("if",),
    "else": ("if",),
    "minContains": ("contains",),
    "maxContains": ("contains",),
}
"""Keywords that say nothing unless one of these stands beside them."""

_SCHEMAS = frozenset({"items", "additionalItems", "additionalProperties", "allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Where further schemas are: one or a list of them, or by names, which are no keywords."""


def without_idle(schema: Any) -> Any:
    """The same schema. Raises RecursionError for what is too deep."""
    if isinstance(schema, list):
        return [without_idle(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _inner(key, value) for key, value in schema.items() if not _is_idle(key, value, schema)}


def _inner(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: without_idle(each) for name, each in value.items()}
    return without_idle(value) if key in _SCHEMAS else value


def _is_idle(key: str, value: Any, schema: dict[str, Any]) -> bool:
    if key in _PARTNERS:
        return not any(partner in schema for partner in _PARTNERS[key])
    return any(type(value) is type(idle) and value == idle for idle in _IDLE.get(key, ()))
