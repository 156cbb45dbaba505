from __future__ import annotations

from typing import Any

import msgspec
import pytest

from quiesce.api import responses as r


def shape(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_a_chat_completion() -> None:
    answer = r.ChatCompletion("chatcmpl-1", 7, "m", [r.ChatChoice(r.AnswerMessage("hi"), "stop")], r.Usage.of(3, 2, 1))
    assert shape(answer) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
    }


def test_chunks_leave_out_what_was_not_asked_for() -> None:
    chunk = r.ChatChunk("chatcmpl-1", 7, "m", [r.ChunkChoice(r.Delta(content="hi"))])
    assert shape(chunk)["choices"] == [
        {"index": 0, "delta": {"content": "hi"}, "finish_reason": None, "logprobs": None}
    ]
    assert "usage" not in shape(chunk)
    assert shape(r.ChatChunk("chatcmpl-1", 7, "m", [], None))["usage"] is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (429, "rate_limit_error"), (503, "server_error")],
)
def test_errors(status: int, kind: str) -> None:
    body = r.error_body("no", code="c", status=status, param="p")
    assert shape(body) == {"error": {"message": "no", "type": kind, "param": "p", "code": "c"}}
