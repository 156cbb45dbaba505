"""Bytes and durations as people write them."""

from __future__ import annotations

import re

_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> int:
    """`"4G"`, `"512 MiB"`, `"1024"` to bytes (powers of 1024). Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is no number of bytes; write for example 512M or 4G")
    return int(float(match[1]) * _BYTES[match[2].lower()])


def parse_seconds(text: str) -> float:
    """`"30"`, `"30s"`, `"500ms"`, `"2m"` to seconds. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is no duration; write for example 30s or 500ms")
    return float(match[1]) * _SECONDS[match[2].lower()]


def show_bytes(n_bytes: int) -> str:
    """`1536` to `"1.5 KiB"`."""
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
