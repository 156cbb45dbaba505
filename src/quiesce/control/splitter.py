"""Cuts a byte stream into frame payloads."""

from __future__ import annotations

from quiesce.control.frames import HEADER_BYTES, MAX_FRAME_BYTES, payload_bytes
from quiesce.errors import BadFrame


class FrameSplitter:
    """Bytes in, payloads out. Consumed bytes are dropped once per `feed`, so a batch of frames costs linear time."""

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._start = 0

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer) - self._start

    @property
    def has_frame(self) -> bool:
        """Whether `next_payload` would return a payload (or raise BadFrame) without more bytes."""
        try:
            end = self._frame_end()
        except BadFrame:
            return True
        return end is not None

    def feed(self, data: bytes) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_payload(self) -> bytes | None:
        """The next complete frame's payload, or None. Raises BadFrame when the next frame is too large."""
        end = self._frame_end()
        if end is None:
            return None
        with memoryview(self._buffer) as view:
            payload = bytes(view[self._start + HEADER_BYTES : end])
        self._start = end
        if end == len(self._buffer):
            self.clear()
        return payload

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self._buffer = bytearray()
        self._start = 0

    def _frame_end(self) -> int | None:
        body = self._start + HEADER_BYTES
        if len(self._buffer) < body:
            return None
        end = body + payload_bytes(self._buffer[self._start : body], self._limit_bytes)
        return end if end <= len(self._buffer) else None
