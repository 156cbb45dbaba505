"""Text that others wrote: whether it will do as a name, and how it is shown where a terminal reads it."""

from __future__ import annotations

_QUOTING = frozenset("\"'`\\")


def is_plain(text: str) -> bool:
    """Whether every character is one that is seen: none that a terminal obeys, that ends a line or turns it around."""
    return text.isprintable()


def is_name(text: str) -> bool:
    """Whether it will do as a name in a log line, a shell and a metric's label. A file path may be one."""
    return text != "" and is_plain(text) and _QUOTING.isdisjoint(text)


def shown(text: str) -> str:
    """As it is, but for what is not seen: that is written as Python would, `\\x1b`."""
    if is_plain(text):
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
