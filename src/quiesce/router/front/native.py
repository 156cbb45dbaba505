"""`/generate`, SGLang's own dialect: read as a completion by other names, answered with `text` and `meta_info`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from quiesce.api.asked import Asked, read_completion
from quiesce.api.logprobs import Said, shown
from quiesce.api.reading import invalid, read
from quiesce.api.responses import FinishReason, Usage
from quiesce.errors import RequestRejected
from quiesce.router.answer import Piece
from quiesce.router.dialects import Dialect, Finished
from quiesce.router.reply import Event

USUAL_MAX_TOKENS = 128
"""SGLang's default for `max_new_tokens`."""

_SAMPLING = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
_PROMPTS = ("text", "input_ids")
_OWN = frozenset({*_PROMPTS, "sampling_params", "return_logprob", "top_logprobs_num", "rid"})
_SWITCHES = frozenset({"return_text_in_logprobs", "no_logs", "return_bytes", "return_entropy", "return_hidden_states"})
"""What other routers send along with every request, always off."""

Fields = dict[str, msgspec.Raw]


class _Told(msgspec.Struct, frozen=True):
    """The fields that hold others, or decide about others."""

    sampling_params: Fields | None = None
    return_logprob: bool | None = None
    top_logprobs_num: int | None = None


def read_generate(body: bytes, longest_tokens: int | None = None) -> Asked:
    """The body of `/generate`, with one prompt. Raises RequestRejected, naming the parameter as `/generate` does."""
    fields = read(body, Fields)
    told = _completion(fields, read(body, _Told))
    try:
        asked = read_completion(msgspec.json.encode(told), longest_tokens)
    except RequestRejected as error:
        raise _renamed(error, fields) from None
    if len(asked.prompts) * asked.n > 1:
        raise RequestRejected("One prompt and one answer at a time.", code="unsupported_parameter", param="text")
    usual = asked.usual_max_tokens if asked.prompt_alone else None if asked.max_tokens else USUAL_MAX_TOKENS
    return replace(asked, usual_max_tokens=usual, continuous_usage=asked.stream)


def _completion(fields: Fields, own: _Told) -> dict[str, Any]:
    """The same request in the dialect of `/v1/completions`; what has no other name keeps its own."""
    given = [name for name in _PROMPTS if name in fields and bytes(fields[name]) != b"null"]
    if len(given) != 1:
        raise invalid("Give either text or input_ids.", "text")
    told: dict[str, Any] = {"prompt": fields[given[0]]}
    told |= {_SAMPLING.get(name, name): value for name, value in (own.sampling_params or {}).items()}
    told |= {name: value for name, value in fields.items() if name not in _OWN and not _is_off(name, value)}
    return told | ({"logprobs": own.top_logprobs_num or 0} if own.return_logprob else {})


def _is_off(name: str, value: msgspec.Raw) -> bool:
    return name in _SWITCHES and bytes(value) in (b"false", b"null")


def _renamed(error: RequestRejected, fields: Fields) -> RequestRejected:
    names = {ours: theirs for theirs, ours in _SAMPLING.items()}
    names["prompt"] = "text" if "text" in fields else "input_ids"
    param = names.get(error.param or "", error.param)
    return RequestRejected(error.message, code=error.code, status=error.status, param=param)


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """`length` says how many tokens were allowed, when that ended the answer."""

    type: FinishReason
    length: int | None = None


class Meta(msgspec.Struct, frozen=True):
    id: str
    finish_reason: End | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    output_token_logprobs: Sequence[tuple[float | None, int, str]] | msgspec.UnsetType = msgspec.UNSET
    output_top_logprobs: Sequence[Sequence[tuple[float | None, int, str]]] | msgspec.UnsetType = msgspec.UNSET
    input_token_logprobs: Sequence[object] | msgspec.UnsetType = msgspec.UNSET


class Generated(msgspec.Struct, frozen=True):
    """The answer, and each event of its stream: the text so far."""

    text: str
    meta_info: Meta


class NativeDialect(Dialect):
    """Of one answer. Events of a stream hold all that was said so far, as SGLang's do."""

    prefix = "gen-"
    prompt_field = "text"

    _text = ""
    _said: tuple[Said, ...] = ()

    def opening(self, index: int, echo: Piece, usage: Usage | None) -> list[Event]:
        return []

    def piece(self, index: int, piece: Piece, usage: Usage | None) -> list[Event]:
        self._text += piece.text
        self._said += piece.said
        return [Event(self._generated(None, usage))]

    def closing(self, index: int, finish_reason: FinishReason, usage: Usage | None) -> list[Event]:
        return [Event(self._generated(finish_reason, usage))]

    def ending(self, usage: Usage) -> list[Event]:
        return []

    def whole(self, answers: Sequence[Finished], usage: Usage) -> object:
        (answer,) = answers
        self._text, self._said = answer.piece.text, answer.piece.said
        return self._generated(answer.finish_reason, usage)

    def _generated(self, finish_reason: FinishReason | None, usage: Usage | None) -> Generated:
        usage = usage or Usage.of(0, 0)
        end = None
        if finish_reason:
            end = End(finish_reason, usage.completion_tokens if finish_reason == "length" else None)
        cached = usage.prompt_tokens_details.cached_tokens
        meta = Meta(self.id, end, usage.prompt_tokens, usage.completion_tokens, cached)
        return Generated(self._text, self._with_said(meta) if self._with_logprobs else meta)

    def _with_said(self, meta: Meta) -> Meta:
        return replace(
            meta,
            output_token_logprobs=[self._entry(said.token_id, said.logprob) for said in self._said],
            output_top_logprobs=[[self._entry(*each) for each in said.top] for said in self._said],
            input_token_logprobs=[],
        )

    def _entry(self, token_id: int, logprob: float | None) -> tuple[float | None, int, str]:
        return (logprob, token_id, shown(self._spell(token_id)))
