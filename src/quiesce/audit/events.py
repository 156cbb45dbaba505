"""An event stream of the OpenAI API, read into an `Answer`. Whatever is no event of it is passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from quiesce.audit.observation import MOST_TOKENS, Answer, Outcome, Usage
from quiesce.errors import PeerUnusable

MOST_BYTES = 8 << 20
"""Of one answer; more is no answer to what an audit asks."""

_DATA = b"data:"


class Stream:
    """Feed it the body's bytes. `events` counts those that brought text; `text` also has what an error event says."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.events = 0
        self._rest = b""
        self._bytes = 0

    def feed(self, data: bytes) -> int:
        """How many events with text were complete in it. Raises PeerUnusable for a body without end."""
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            raise PeerUnusable(f"an answer has more than {MOST_BYTES} bytes.", took_effect=True)
        before = self.events
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.strip())
        return self.events - before

    def end(self) -> None:
        """The body is over: it was whole if a reason was given why."""
        self._take(self._rest.strip())
        if self.answer.outcome is Outcome.INCOMPLETE and self.answer.finish:
            self.answer.outcome = Outcome.FINISHED

    def _take(self, line: bytes) -> None:
        if not line.startswith(_DATA) or line.endswith(b"[DONE]"):
            return
        event = as_object(line[len(_DATA) :])
        if "error" in event:
            self.answer.outcome = Outcome.ERROR
            self.answer.code = code_of(event)
            self.answer.text += line.decode("utf-8", "replace")
            return
        if isinstance(event.get("usage"), dict):
            self.answer.usage = usage_of(event["usage"])
        for choice in event.get("choices") or ():
            if isinstance(choice, dict):
                self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        piece = text_of(choice.get("delta")) or text_of(choice)
        if piece:
            self.events += 1
            self.answer.text += piece
        if isinstance(choice.get("finish_reason"), str):
            self.answer.finish = choice["finish_reason"]


def as_object(data: bytes) -> dict[str, Any]:
    """JSON's object, or an empty one for anything else."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def text_of(part: object) -> str:
    """All text that a delta, or a choice of `/v1/completions`, brings; what a model thinks aloud included."""
    if not isinstance(part, dict):
        return ""
    return "".join(
        part[name] for name in ("reasoning_content", "content", "text") if isinstance(part.get(name), str)
    )  # fmt: skip


def usage_of(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _count(usage.get("total_tokens")),
        _count(cached),
    )


def code_of(body: dict[str, Any]) -> str:
    """`error.code`, or `error.type` where there is none. Not to be shown before it is known to be a name of ours."""
    error = body.get("error")
    if not isinstance(error, dict):
        return "other"
    return next((error[name] for name in ("code", "type") if isinstance(error.get(name), str)), "other")


def _count(value: object) -> int | None:
    """What it is, no further off than is needed to see that it cannot be."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return max(-1, min(value, MOST_TOKENS))
