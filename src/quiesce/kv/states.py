"""What a page of a pool is for."""

from __future__ import annotations

from enum import IntEnum


class PageState(IntEnum):
    """What a page is for. Only FREE pages are ever allocated."""

    FREE = 0
    USED = 1
    CACHED = 2
    RESERVED = 3
    HELD = 4
    QUARANTINED = 5
