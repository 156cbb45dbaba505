"""What is wrong with a body, as people say it: msgspec speaks of `int | null` and `>= 1`."""

from __future__ import annotations

import re

_MOST_CHARACTERS = 200
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_GIVEN = _WANTED | {"bool": "a boolean"}
_COMPARED = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_UNITS = {"str": "characters", "array": "items"}

_BOUND = re.compile(r"Expected `(\w+)[^`]*` (of length )?(>=|<=|>|<) (\S+)$")
_TYPE = re.compile(r"Expected `([^`]+)`, got `(\w+)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`$")
_ENUM = re.compile(r"Invalid (?:enum )?value (.*)$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)


def in_english(message: str) -> str:
    """msgspec's "Expected `int` >= 1 - at `$.n`" as "n must be at least 1."; cut short where it quotes the body."""
    what, _, path = message.replace("at `key` in `", "at `", 1).partition(" - at `$")
    where = path.rstrip("`").lstrip(".")
    if found := _BOUND.match(what):
        return f"{where} must {_bound(*found.groups())}."
    if found := _TYPE.match(what):
        return f"{where or 'The body'} must be {_wanted(found[1])}, not {_GIVEN.get(found[2], found[2])}."
    if found := _MISSING.match(what):
        return f"{where}.{found[1]} is missing.".lstrip(".")
    if found := _ENUM.match(what):
        return f"{where} must not be {found[1][:_MOST_CHARACTERS]}."
    if found := _UNKNOWN.match(what):
        return f"{where or 'The body'} has no field {found[1][:_MOST_CHARACTERS]!r}."
    return f"{where}: {what[:_MOST_CHARACTERS]}" if where else what[:_MOST_CHARACTERS]


def param_of(message: str) -> str | None:
    """The field of the body that msgspec complains about."""
    found = re.search(r"(?:at|in) `\$\.(\w+)", message) or re.search(r"missing required field `(\w+)`", message)
    return found[1] if found else None


def _bound(kind: str, of_length: str | None, sign: str, number: str) -> str:
    number = number.removesuffix(".0")
    if not of_length:
        return f"be {_COMPARED[sign]} {number}"
    if (sign, number) == (">=", "1"):
        return "not be empty"
    return f"have {_COMPARED[sign]} {number} {_UNITS.get(kind, 'parts')}"


def _wanted(types: str) -> str:
    """null is the same as absent and not worth a word."""
    return " or ".join(_WANTED.get(each, each) for each in types.split(" | ") if each != "null")
