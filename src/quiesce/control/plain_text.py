"""Text that others wrote: whether it will do as a name, and how it is shown where a terminal reads it."""

from __future__ import annotations

import json
import re

from quiesce.control.bounds import MAX_NAME_CHARS

_QUOTING = frozenset("\"'`\\")
_NOT_ASCII = re.compile(r"[^\n -~]")


def is_plain(text: str) -> bool:
    """Whether every character is one that is seen: none that a terminal obeys, that ends a line or turns it around."""
    return text.isprintable()


def why_no_name(text: str) -> str:
    """Why it will not do as a name in a log line, a shell and a metric's label, or "". A file path may be one."""
    if not 1 <= len(text) <= MAX_NAME_CHARS:
        return f"a name has 1 to {MAX_NAME_CHARS} characters, and this one has {len(text)}"
    if is_plain(text) and _QUOTING.isdisjoint(text):
        return ""
    return f"{shown(text)} is no name: printable characters without quotes and backslashes make one"


def shown(text: str) -> str:
    """As it is, but for what is not seen: that is written as Python would, `\\x1b`."""
    if is_plain(text):
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shown_lines(text: str) -> str:
    """`shown`, but for the ends of lines and tabs, which are left."""
    return "".join(each if each in "\n\t" else shown(each) for each in re.split(r"([\n\t])", text))


def ascii_json(encoded: bytes) -> str:
    """The same JSON in ASCII: what else there is stands in strings, and means the same as `\\u009b`."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], encoded.decode())
