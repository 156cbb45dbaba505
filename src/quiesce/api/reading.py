"""The one place where a client's JSON is decoded, and where what is wrong with it becomes a refusal."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from quiesce.api.wording import in_english, param_of
from quiesce.errors import RequestRejected

T = TypeVar("T")

MOST_DEPTH = 64
"""Levels of lists and objects in a value that is handed on as it is."""


def read(data: bytes | msgspec.Raw, kind: type[T], field: str | None = None) -> T:
    """`data` as `kind`; `field` names the part of the body that `data` is, if it is not the whole.

    Raises RequestRejected (400): `invalid_value`, or `invalid_json` when the whole body is not JSON.
    """
    where = field or "The body"
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise invalid(f"{where} is nested too deeply.", field) from None
    except msgspec.ValidationError as error:
        raise invalid(_named(in_english(str(error)), field), field or param_of(str(error))) from None
    except (ValueError, ArithmeticError) as error:  # DecodeError, UnicodeError, and whatever a number can do
        code = "invalid_value" if field else "invalid_json"
        raise RequestRejected(f"{where} is no valid JSON: {error}", code=code, param=field) from None


def invalid(message: str, param: str | None) -> RequestRejected:
    return RequestRejected(message, code="invalid_value", param=param)


def refuse_deeper(value: Any, param: str) -> None:
    """Raises RequestRejected for what has more than MOST_DEPTH levels: whoever writes it out again recurses."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(MOST_DEPTH):
        level = [child for each in level for child in _children(each)]
    if level:
        raise invalid(f"{param} is nested too deeply; at most {MOST_DEPTH} levels are read.", param)


def _children(value: list[Any] | dict[str, Any]) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value
    return [child for child in children if isinstance(child, list | dict)]


def _named(message: str, field: str | None) -> str:
    return f"{field}: {message}" if field else message
