"""Reading what is said at a registration, with every field's bounds checked."""

from __future__ import annotations

from quiesce.control.bounds import (
    MAX_TEXT_CHARS,
    check_count,
    check_hex_128,
    check_int,
    check_one_of,
    check_text,
)
from quiesce.control.frames import decoder_of
from quiesce.control.hello_codec import decode_greeting
from quiesce.control.snapshot_bounds import ROLES
from quiesce.control.workers_file import MOST_WORKERS
from quiesce.protocol.registration import Leave, Refused, Register, RegistrarFrame

MAX_ADDRESS_CHARS = 512
MOST_UNFIT = 64
MAX_REASON_CHARS = 1024

_decode_register = decoder_of(Register)
_decode_registrar = decoder_of(RegistrarFrame)

decode_leave = decoder_of(Leave)
"""What may follow `Register`. Raises BadFrame."""


def decode_register(payload: bytes) -> Register:
    """The first frame of a worker that announces itself. Raises BadFrame."""
    frame: Register = _decode_register(payload)
    check_int("version", frame.version)
    check_one_of("role", frame.role, ROLES)
    check_text("worker", frame.worker, least_chars=1)
    check_hex_128("incarnation", frame.incarnation)
    check_text("address", frame.address, MAX_ADDRESS_CHARS, least_chars=1)
    check_text("model", frame.model)
    if frame.hello:
        decode_greeting(frame.hello)
    return frame


def decode_registrar_frame(payload: bytes) -> RegistrarFrame:
    """A router's answer. Raises BadFrame."""
    frame: RegistrarFrame = _decode_registrar(payload)
    if isinstance(frame, Refused):
        check_text("reason", frame.reason, MAX_TEXT_CHARS)
        return frame
    check_count("prefills", frame.prefills, MOST_WORKERS)
    for name, address in frame.prefills:
        check_text("prefills", name, least_chars=1)
        check_text("prefills", address, MAX_ADDRESS_CHARS, least_chars=1)
    check_count("unfit", frame.unfit, MOST_UNFIT)
    for name, reason in frame.unfit:
        check_text("unfit", name, least_chars=1)
        check_text("unfit", reason, MAX_REASON_CHARS)
    return frame
