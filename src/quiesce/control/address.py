"""Addresses of control connections, as settings write them."""

from __future__ import annotations

import os
from pathlib import Path

from quiesce.errors import ConfigurationError

MAX_PATH_BYTES = 107
"""What a socket address of the kernel holds (108 with the closing zero)."""

_SCHEME = "unix:"


def parse_address(text: str) -> Path:
    """`"unix:/run/q/decode-0.sock"` to its path. Raises ConfigurationError for anything else."""
    if not text.startswith(_SCHEME):
        raise ConfigurationError([f"address {text!r} is not supported: write unix:/absolute/path.sock"])
    path = text.removeprefix(_SCHEME)
    if problem := _path_problem(path):
        raise ConfigurationError([f"address {text!r}: {problem}"])
    return Path(path)


def show_address(path: str | os.PathLike[str]) -> str:
    """The inverse of `parse_address`."""
    return f"{_SCHEME}{os.fspath(path)}"


def _path_problem(path: str) -> str:
    if not path.startswith("/") or path.endswith("/"):
        return "the path must be absolute and name a file"
    if "\0" in path:
        return "the path holds a zero byte"
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return f"the path is longer than {MAX_PATH_BYTES} bytes, which no Unix socket can have"
    return ""
