"""One line per step, the same bytes in every run: what logs, scenario files and counterexamples are made of.

`quiesce.lab.trace` reads such lines again and replays them against the model of the protocol.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Container, Iterable
from enum import Enum
from typing import Any

import msgspec

from quiesce.ids import AttemptKey, Incarnation, Peer
from quiesce.protocol.messages import Envelope, Lease
from quiesce.protocol.reasons import kind_of

MAX_BYTES_SHOWN = 16
MAX_TEXT_SHOWN = 48
MAX_RUNS_SHOWN = 16

PUBLIC = frozenset(
    {
        *("attempt", "awaiting", "below", "body", "cached_tokens", "code", "decode", "decode_rank"),
        *("decode_ranks", "envelope", "failure", "fault", "first_page", "grants", "held_tokens", "key", "kind"),
        *("landing", "last", "lease", "leases", "metadata_slot", "old", "open_attempts", "outcome"),
        *("outstanding", "pages", "pages_written", "peer", "peers", "poisoned", "prompt_tokens", "proof"),
        *("read", "reason", "request", "room", "round", "sender", "source", "status", "subject", "target"),
        *("timer", "to", "watermark", "write"),
    }
)
"""Fields that tell nothing of what a user said or was told. Others (a first token, a digest) are not for strangers."""

_DIGEST = re.compile(r"[0-9a-f]{32}")
_WORD = re.compile(r"[^\s()\[\]=,;'\"]+")
_RUN = struct.Struct("<II")


def machine(role: str, incarnation: Incarnation) -> str:
    """Whose steps these are: `decode@0a1b2c3d`, the life as `Peer` shows it."""
    return f"{role}@{incarnation[:8]}"


def record(
    at_s: float,
    serial: int,
    machine: str,
    fact: msgspec.Struct,
    effects: Iterable[msgspec.Struct],
    public: Container[str] | None = None,
) -> str:
    """A line as workers keep it: seconds since the epoch, which step of its life this is (from 1), the step."""
    return f"{at_s:.6f} {serial} {line(machine, fact, effects, public)}"


def line(
    machine: str, fact: msgspec.Struct, effects: Iterable[msgspec.Struct], public: Container[str] | None = None
) -> str:
    """`machine <- Fact(...) -> Effect(...); Effect(...)`, or `-> nothing`. `public` is as in `show`."""
    done = "; ".join(show(effect, public) for effect in effects)
    return f"{machine} <- {show(fact, public)} -> {done or 'nothing'}"


def show(value: Any, public: Container[str] | None = None) -> str:
    """Canonical text of anything that machines take or give. Defaults of fields are left out.

    With `public`, values of other fields, and digests wherever they stand, are shown as `*`.
    """
    match value:
        case Peer() as peer:
            return str(peer)
        case AttemptKey(decode=decode, attempt=attempt):
            return f"{decode}#{attempt}"
        case Envelope():
            return _show_envelope(value, public)
        case Lease(tag=tag, pages=pages, metadata_slot=slot, runs=runs):
            return f"Lease({pages} pages {_show_runs(runs)} tag {tag:x} slot {slot})"
        case msgspec.Struct():
            return _show_struct(value, public)
        case Enum():
            return str(value.value)
        case bytes():
            return _show_bytes(value)
        case str():
            return "*" if public is not None and _DIGEST.fullmatch(value) else _show_text(value)
        case tuple():
            return "(" + " ".join(show(item, public) for item in value) + ")"
        case _:
            return str(value)


def _show_envelope(envelope: Envelope, public: Container[str] | None) -> str:
    told = envelope.open_attempts
    still = "" if told is None else f" open<{told.watermark}[{_show_numbers(told.below)}]"
    body = _show_struct(envelope.body, public, kind_of(envelope.body))
    return f"{envelope.sender}->{envelope.to}#{envelope.attempt} {body}{still}"


def _show_struct(value: msgspec.Struct, public: Container[str] | None, name: str = "") -> str:
    fields = [
        f"{field.name}={show(said, public) if public is None or field.name in public else '*'}"
        for field in _fields_of(type(value))
        if (said := getattr(value, field.name)) != field.default
    ]
    return f"{name or type(value).__name__}({', '.join(fields)})"


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _show_numbers(numbers: Iterable[int]) -> str:
    """`1..4,7`: what is open is mostly consecutive."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(_show_span(first, last) for first, last in spans)


def _show_span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def _show_runs(runs: bytes) -> str:
    """`[0..10] [13]`: which pages, as `quiesce inspect` shows them; too many runs, or none at all, as bytes."""
    if len(runs) % _RUN.size or not 0 < len(runs) <= MAX_RUNS_SHOWN * _RUN.size:
        return _show_bytes(runs)
    return " ".join(f"[{_show_span(first, first + count - 1)}]" for first, count in _RUN.iter_unpack(runs))


def _show_bytes(value: bytes) -> str:
    """Short values in hex, long ones as a digest: runs can be megabytes."""
    if len(value) <= MAX_BYTES_SHOWN:
        return f"0x{value.hex()}"
    return f"{len(value)}B:{hashlib.blake2b(value, digest_size=6).hexdigest()}"


def _show_text(value: str) -> str:
    short = value if len(value) <= MAX_TEXT_SHOWN else value[:MAX_TEXT_SHOWN] + "..."
    return short if short.isprintable() and _WORD.fullmatch(short) else repr(short)
