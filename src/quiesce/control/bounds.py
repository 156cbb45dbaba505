"""Bounds that fields of received frames must keep. All raise BadFrame."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from quiesce.errors import BadFrame

MAX_NAME_CHARS = 256
MAX_TEXT_CHARS = 64 << 10
MAX_INT = (1 << 63) - 1
MAX_SECONDS = 1e9

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_HEX_128 = re.compile(r"[0-9a-f]{32}", re.ASCII)


def check_request_id(value: str) -> None:
    if not _REQUEST_ID.fullmatch(value):
        raise BadFrame("request: not a request id")


def check_hex_128(field: str, value: str) -> None:
    """Incarnations, nonces: 128 bits as 32 lower-case hex digits."""
    if not _HEX_128.fullmatch(value):
        raise BadFrame(f"{field}: not 32 hex digits")


def check_text(field: str, value: str, limit_chars: int = MAX_NAME_CHARS, *, least_chars: int = 0) -> None:
    if not least_chars <= len(value) <= limit_chars:
        raise BadFrame(f"{field}: {len(value)} characters; {least_chars} to {limit_chars} are allowed")


def check_int(field: str, value: int, least: int = 0, most: int = MAX_INT) -> None:
    if not least <= value <= most:
        raise BadFrame(f"{field}: {value} is not in [{least}, {most}]")


def check_number(field: str, value: float, least: float, most: float, *, above: bool = False) -> None:
    """`least <= value <= most`, or `least < value` when `above`; never NaN or infinite."""
    low_enough = value > least if above else value >= least
    if not (math.isfinite(value) and low_enough and value <= most):
        raise BadFrame(f"{field}: {value} is not in {'(' if above else '['}{least}, {most}]")


def check_count(field: str, values: Collection[object], most: int) -> None:
    if len(values) > most:
        raise BadFrame(f"{field}: {len(values)} entries; at most {most} are allowed")


def check_one_of(field: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise BadFrame(f"{field}: {value[:MAX_NAME_CHARS]!r} is not one of {', '.join(sorted(allowed))}")
