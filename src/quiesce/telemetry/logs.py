"""Structured logs: one line per event on stderr, `key=value` or JSON, with ids and never a prompt or an answer.

::

    _log.info("hold armed", extra=ids(request=request, attempt=7, pages=31))

    ts=2026-05-04T10:11:12.345Z level=info role=decode worker=decode-0 logger=worker.driver msg="hold armed"
    request=req-1 attempt=7 pages=31          (on one line)
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType

from quiesce.errors import ConfigurationError, InvariantBroken, invariant

LEVELS = ("debug", "info", "warning", "error")

LIBRARIES = ("asyncio", "opentelemetry", "uvicorn")
"""Libraries whose warnings come in the same form; their lines of lower levels are left out."""

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

FIELDS = frozenset(
    {
        *(
            "request",
            "client_request",
            "room",
            "attempt",
            "peer",
            "rank",
            "incarnation",
            "worker_name",
            "write",
            "serial",
            "pid",
        ),
        *("state", "proof", "outcome", "code", "reason", "kind", "fault", "timer", "round", "cause", "finish"),
        *("pages", "tokens", "bytes", "seconds", "count", "unsaid", "outstanding", "port", "path", "address", "model"),
    }
)
"""What a log line may carry besides its message. There is no field for text of a user, on purpose."""

MAX_VALUE_CHARS = 512

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+-]+", re.ASCII)


def ids(**fields: object) -> dict[str, dict[str, object]]:
    """`extra=ids(...)` for a logging call. A name outside `FIELDS` is our bug; None values are left out."""
    unknown = fields.keys() - FIELDS
    invariant(not unknown, "log_fields", ", ".join(sorted(unknown)))
    return {"ids": {name: value for name, value in fields.items() if value is not None}}


def configure(level: str, role: str, worker: str, log_format: str = "text") -> None:
    """Send this process's logs to stderr from now on, as `text` or `json`.

    Raises ConfigurationError for an unknown level.
    """
    if level.lower() not in LEVELS:
        raise ConfigurationError([f"log level {level!r} is not one of {', '.join(LEVELS)}"])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(role, worker) if log_format == "json" else KeyValueFormatter(role, worker))
    for name in ("quiesce", *LIBRARIES):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "quiesce" else max(logging.WARNING, getattr(logging, level.upper())))


class LineFormatter(logging.Formatter):
    """One record, one line, whatever it holds.

    What an exception says may quote what a client sent, and the router is where clients' text is: there, tracebacks
    have places and types, but no messages of exceptions that are not ours.
    """

    def __init__(self, role: str, worker: str) -> None:
        super().__init__()
        self._role, self._worker = role, worker

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        pairs: dict[str, object] = {
            "ts": _timestamp(record.created),
            "level": record.levelname.lower(),
            "role": self._role,
            "worker": self._worker,
            "logger": record.name.removeprefix("quiesce."),
            "msg": record.getMessage(),
            **getattr(record, "ids", {}),
        }
        if record.exc_info:
            pairs["traceback"] = self.formatException(record.exc_info)
        return pairs

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - logging's name
        if self._role != "router" or ei[1] is None:
            return super().formatException(ei)
        return "".join(_places(ei[1])).rstrip()


class KeyValueFormatter(LineFormatter):
    """`key=value`, for people and grep."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_quoted(_cut(name, value))}" for name, value in self.fields(record).items())


class JsonFormatter(LineFormatter):
    """One JSON object; numbers stay numbers, everything else is text."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({name: _plain(name, value) for name, value in self.fields(record).items()})


def _places(error: BaseException) -> Iterator[str]:
    """An exception and those it came from: where they were raised and what they are, not what they say."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _places(cause)
        yield "which led to:\n"
    yield from traceback.format_tb(error.__traceback__)
    said = f": {error}" if isinstance(error, InvariantBroken) else " (what it says is withheld)"
    yield f"{type(error).__qualname__}{said}\n"


def origin(error: BaseException) -> str:
    """What an error is and where it was raised, not what it says: `ValueError at sampling.py:31`."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__qualname__}{place}"


def _timestamp(created_s: float) -> str:
    # From the whole seconds, not by rounding: 59.9996 must not become 60.000.
    millis = int(created_s * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(millis // 1000))}.{millis % 1000:03d}Z"


def _cut(name: str, value: object) -> str:
    text = str(value)
    return text if name == "traceback" or len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}..."


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _plain(name: str, value: object) -> object:
    # A float that JSON cannot say (nan, inf) is text.
    finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return value if finite else _cut(name, value)
