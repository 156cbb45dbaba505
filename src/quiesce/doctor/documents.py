"""One input as text, and which kind of text it is. Sizes are bounded; nothing but regular files is read."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from quiesce.doctor.launches import find_program
from quiesce.errors import UsageError
from quiesce.units import show_bytes

MOST_LOG_BYTES = 16 << 20
"""Of a log only its beginning is read: what a process says at start."""
MOST_BYTES = 1 << 20


class Kind(StrEnum):
    """What an input is."""

    COMMAND = "command"
    UNIT = "unit"
    ENVIRONMENT = "environment"
    MANIFEST = "manifest"
    LOG = "log"
    JSON = "json"
    METRICS = "metrics"
    TOML = "toml"


class Document(msgspec.Struct, frozen=True):
    """`name` is how the input was given; `cut` says that more follows what `text` holds."""

    name: str
    text: str
    cut: bool = False


def read_file(name: str) -> Document:
    """A file, or standard input for `-`. Raises UsageError."""
    if name == "-":
        return _decoded("-", sys.stdin.buffer.read(MOST_LOG_BYTES + 1))
    path = Path(name)
    try:
        if not path.is_file():
            what = "is a directory" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
            raise UsageError(f"{name} {what}; nothing was examined.", remedy="Give a file, or an http:// address.")
        with path.open("rb") as file:
            return _decoded(name, file.read(MOST_LOG_BYTES + 1))
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise UsageError(f"{name} cannot be read: {why}.") from None


def _decoded(name: str, content: bytes) -> Document:
    if b"\0" in content[:4096]:
        raise UsageError(f"{name} is no text.")
    text = content[:MOST_LOG_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")
    return Document(name, text, len(content) > MOST_LOG_BYTES)


def kind_of(document: Document) -> Kind:
    """What the text is by its looks. Raises UsageError when it looks like nothing known."""
    text = document.text
    for kind, looks in _LOOKS:
        if looks(document.name, text):
            return kind
    raise UsageError(
        f"{document.name}: cannot tell what this is.",
        remedy=f"Say it with --kind, one of {', '.join(Kind)}.",
    )


def bounded(document: Document, kind: Kind) -> Document:
    """The same, once it is small enough to be parsed as its kind. Raises UsageError."""
    if kind not in (Kind.LOG, Kind.METRICS) and len(document.text) > MOST_BYTES:
        raise UsageError(f"{document.name}: a {kind} of more than {show_bytes(MOST_BYTES)} is not examined.")
    return document


_LOG = re.compile(
    r"server_args=ServerArgs\(|max_total_num_tokens=\d|GPU KV cache size: |vLLM API server version|non-default args: "
    r"|\bts=\S{1,80} level=\w{1,20} role=|^\{\"ts\": ",
    re.MULTILINE,
)
_METRICS = re.compile(r"^(?:# (?:HELP|TYPE) )?(?:quiesce_|sglang:|vllm:)\w+", re.MULTILINE)
_MANIFEST = re.compile(r"^(?:apiVersion|services|x-[\w-]+):", re.MULTILINE)
_UNIT = re.compile(r"^\[Service\]\s*$", re.MULTILINE)
_VARIABLE = re.compile(r"(?:export )?[A-Za-z_]\w*=.*")


def _is_environment(_name: str, text: str) -> bool:
    lines = [line.strip() for line in text[:MOST_BYTES].splitlines()]
    said = [line for line in lines if line and not line.startswith("#")]
    return bool(said) and all(_VARIABLE.fullmatch(line) for line in said)


def _is_command(_name: str, text: str) -> bool:
    return find_program(text[:MOST_BYTES].replace("\\\n", " ").split()) is not None


_LOOKS: tuple[tuple[Kind, Callable[[str, str], bool]], ...] = (
    (Kind.TOML, lambda name, _text: name.endswith(".toml")),
    (Kind.LOG, lambda _name, text: bool(_LOG.search(text))),
    (Kind.JSON, lambda _name, text: text.lstrip()[:1] in ("{", "[") and not _MANIFEST.search(text)),
    (Kind.UNIT, lambda _name, text: bool(_UNIT.search(text))),
    (Kind.METRICS, lambda _name, text: bool(_METRICS.search(text))),
    (Kind.MANIFEST, lambda _name, text: bool(_MANIFEST.search(text))),
    (Kind.ENVIRONMENT, _is_environment),
    (Kind.COMMAND, _is_command),
)
