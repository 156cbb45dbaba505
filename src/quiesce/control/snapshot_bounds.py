"""Bounds of what a worker tells about itself."""

from __future__ import annotations

from quiesce.control.bounds import (
    MAX_SECONDS,
    MAX_TEXT_CHARS,
    check_count,
    check_hex_128,
    check_int,
    check_number,
    check_one_of,
    check_text,
)
from quiesce.protocol.dispatch import MOST_TROUBLE_CHARS, MOST_TROUBLES, PageRange, RoomView, Welcome, WorkerSnapshot

ROLES = ("prefill", "decode", "aggregated")
MAX_STATES = 64
MAX_AWAITED = 4096


def check_welcome(frame: Welcome) -> None:
    check_text("worker", frame.worker, least_chars=1)
    check_one_of("role", frame.role, ROLES)
    check_hex_128("incarnation", frame.incarnation)
    check_text("model", frame.model, MAX_TEXT_CHARS)
    check_text("model_fingerprint", frame.model_fingerprint)
    for field in ("context_length", "page_size", "version", "max_running"):
        check_int(field, getattr(frame, field), 1)
    for field in ("pool_tokens", "max_queue", "landing_tokens"):
        check_int(field, getattr(frame, field))


def check_snapshot(snapshot: WorkerSnapshot) -> None:
    check_text("worker", snapshot.worker, least_chars=1)
    check_one_of("role", snapshot.role, ROLES)
    check_hex_128("incarnation", snapshot.incarnation)
    check_int("page_size", snapshot.page_size, 1)
    for field in ("running", "waiting", "routers"):
        check_int(field, getattr(snapshot, field))
    for field in ("pages", "landing"):
        counts = getattr(snapshot, field)
        check_count(field, counts, MAX_STATES)
        for state, pages in counts.items():
            check_text(field, state)
            check_int(field, pages)
    check_troubles(snapshot.troubles)
    for found in snapshot.ranges:
        _check_range(found)
    for room in snapshot.rooms:
        _check_room(room)


def check_troubles(troubles: tuple[tuple[str, str], ...]) -> None:
    check_count("troubles", troubles, MOST_TROUBLES)
    for name, reason in troubles:
        check_text("troubles", name, MOST_TROUBLE_CHARS, least_chars=1)
        check_text("troubles", reason, MOST_TROUBLE_CHARS)


def _check_range(found: PageRange) -> None:
    check_int("first", found.first)
    check_int("last", found.last, found.first)
    check_text("state", found.state)
    check_text("owner", found.owner)


def _check_room(room: RoomView) -> None:
    check_text("request", room.request)
    check_text("state", room.state)
    for field in ("attempt", "pages"):
        check_int(field, getattr(room, field))
    check_number("age_s", room.age_s, 0, MAX_SECONDS)
    check_count("awaiting", room.awaiting, MAX_AWAITED)
    for proof in room.awaiting:
        check_text("awaiting", proof)
