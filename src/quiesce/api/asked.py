"""A request that was read and checked: what its client asks for, without the dialect it was asked in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from quiesce.api.conversation import as_messages
from quiesce.api.fields import refuse_others, stripped
from quiesce.api.formats import Grammar, grammar_of
from quiesce.api.reading import invalid, read
from quiesce.api.requests import Body, ChatBody, CompletionBody, StreamOptions
from quiesce.api.response_object import Repeated
from quiesce.api.tools import ToolUse, refuse_other_kinds, tool_use
from quiesce.errors import RequestRejected

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for `/v1/completions`; a chat's default is what fits."""

MAX_CHOICES = 1024
"""Most answers in one response: prompts times `n`."""

Prompt = str | list[int] | list[dict[str, Any]]
"""Text, token ids, or (chat) messages as a chat template takes them."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`max_tokens` is what the client insists on; `usual_max_tokens` is the default, clipped to what fits.

    Each of `prompts` is answered `n` times. `logprobs` counts the alternatives to tell; None: no log probabilities.
    `repeated` is what the answer says of its request, in the dialect that does so. `prompt_alone`: nothing is asked
    for but what is told of the prompt; workers cannot but say one token, which nobody hears of.
    """

    prompts: tuple[Prompt, ...]
    is_chat: bool
    n: int
    echo: bool
    logprobs: int | None
    model: str | None
    max_tokens: int | None
    usual_max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    min_tokens: int
    logit_bias: tuple[tuple[int, float], ...]
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    grammar: Grammar | None = None
    stream: bool
    include_usage: bool
    continuous_usage: bool
    timeout_s: float | None
    priority: int | None
    cache_salt: str
    stripped: tuple[str, ...]
    prompt_alone: bool = False
    tools: ToolUse | None = None
    repeated: Repeated | None = None


def read_chat(body: bytes, longest_tokens: int | None = None) -> Asked:
    """The body of `/v1/chat/completions`. Raises RequestRejected, naming the parameter where there is one.

    How long messages are is known to whoever renders and tokenises them.
    """
    fields = _fields(body, ChatBody)
    refuse_other_kinds(fields)
    return asked_of_chat(read(body, ChatBody), fields)


def asked_of_chat(chat: ChatBody, fields: Mapping[str, msgspec.Raw]) -> Asked:
    """What a chat asks for; `fields` are those of its body before they were decoded. Raises RequestRejected."""
    if chat.top_logprobs and not chat.logprobs:
        raise invalid("top_logprobs needs logprobs to be true.", "top_logprobs")
    return _asked(
        chat,
        prompts=(as_messages(chat.messages),),
        is_chat=True,
        echo=False,
        logprobs=(chat.top_logprobs or 0) if chat.logprobs else None,
        max_tokens=chat.max_completion_tokens or chat.max_tokens,
        usual_max_tokens=None,
        stripped=stripped(fields),
        tools=tool_use(chat, fields),
    )


def read_completion(body: bytes, longest_tokens: int | None = None) -> Asked:
    """The body of `/v1/completions`. Raises RequestRejected, naming the parameter where there is one.

    A prompt of more than `longest_tokens` token ids is refused before it is decoded.
    """
    fields = _fields(body, CompletionBody)
    if longest_tokens is not None and "prompt" in fields:
        _refuse_longer(fields["prompt"], longest_tokens)
    completion = read(body, CompletionBody)
    prompt_alone = _is_prompt_alone(completion)
    return _asked(
        completion,
        prompts=_prompts(completion.prompt),
        is_chat=False,
        echo=bool(completion.echo),
        logprobs=completion.logprobs,
        max_tokens=None if prompt_alone else completion.max_tokens,
        usual_max_tokens=1 if prompt_alone else COMPLETION_MAX_TOKENS,
        prompt_alone=prompt_alone,
        stripped=stripped(fields),
    )


def _is_prompt_alone(body: CompletionBody) -> bool:
    """Raises RequestRejected for an answer of no tokens that would say nothing at all, or must say something."""
    if body.max_tokens != 0:
        return False
    if not body.echo:
        raise invalid("max_tokens must be at least 1, or 0 with echo: then the answer is the prompt.", "max_tokens")
    if body.min_tokens:
        raise invalid("min_tokens is more than the most tokens the answer may have.", "min_tokens")
    return True


def _asked(
    body: Body, *, prompts: tuple[Prompt, ...], max_tokens: int | None, usual_max_tokens: int | None, **of_dialect: Any
) -> Asked:
    stop = body.stop if isinstance(body.stop, list) else [body.stop] if body.stop else []
    options = body.stream_options or StreamOptions()
    _check_together(body, options, len(prompts), max_tokens or usual_max_tokens)
    return Asked(
        prompts=prompts,
        n=body.n or 1,
        model=body.model,
        max_tokens=max_tokens,
        usual_max_tokens=usual_max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        min_tokens=body.min_tokens or 0,
        logit_bias=tuple((int(token), bias) for token, bias in (body.logit_bias or {}).items()),
        seed=body.seed,
        stop=tuple(stop),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        grammar=grammar_of(body),
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.continuous_usage_stats),
        timeout_s=body.timeout,
        priority=body.priority,
        cache_salt=body.cache_salt or "",
        **of_dialect,
    )


def _check_together(body: Body, options: StreamOptions, prompts: int, max_tokens: int | None) -> None:
    """What each parameter alone does not show."""
    if (options.include_usage or options.continuous_usage_stats) and not body.stream:
        raise invalid("stream_options needs stream to be true.", "stream_options")
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        raise invalid("min_tokens is more than the most tokens the answer may have.", "min_tokens")
    if prompts * (body.n or 1) > MAX_CHOICES:
        what = f"{prompts} prompts times n are {prompts * (body.n or 1)} answers; at most {MAX_CHOICES} are given."
        raise invalid(what, "prompt" if prompts > MAX_CHOICES else "n")


def _fields(body: bytes, kind: type[Body]) -> dict[str, msgspec.Raw]:
    """The body's fields, none of which would be ignored though it matters."""
    fields = read(body, dict[str, msgspec.Raw])
    refuse_others(fields, kind.__struct_fields__)
    return fields


def _refuse_longer(prompt: msgspec.Raw, longest_tokens: int) -> None:
    """Numbers are counted by the commas between them; that much text is bounded when it is tokenised."""
    if len(memoryview(prompt)) <= 2 * longest_tokens:
        return
    written = bytes(prompt)
    tokens = written.count(b",") + 1
    one_prompt = written.startswith(b"[") and b'"' not in written and written.count(b"[") <= 2  # [1,2] or [[1,2]]
    if one_prompt and tokens > longest_tokens:
        raise RequestRejected(
            f"The prompt has {tokens} tokens, but at most {longest_tokens} fit.",
            code="context_length_exceeded",
            param="prompt",
        )


def _prompts(prompt: str | list[int | str | list[int]]) -> tuple[Prompt, ...]:
    """A string, token ids, or several of these."""
    if isinstance(prompt, str):
        return (prompt,)
    token_ids = [item for item in prompt if isinstance(item, int)]
    if len(token_ids) == len(prompt):
        return (token_ids,)
    if token_ids:
        raise invalid("prompt: token ids stand beside whole prompts.", "prompt")
    return tuple(item for item in prompt if not isinstance(item, int))
