"""What a director and its actors say to each other."""

from __future__ import annotations

from typing import Any

import msgspec

MOST_BYTES = 1 << 20


class Call(msgspec.Struct, frozen=True):
    """director -> actor: call this method."""

    name: str
    arguments: list[Any]


class Answer(msgspec.Struct, frozen=True):
    """actor -> director: what it returned, or what it raised."""

    value: Any = None
    raised: str = ""
