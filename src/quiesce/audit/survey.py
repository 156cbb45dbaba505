"""Looking before planting: what the endpoint says of itself, how it counts, and how fast it is when it is idle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from quiesce.audit import prompts
from quiesce.audit.endpoint import TRY_AGAIN, Endpoint
from quiesce.audit.marker import mint
from quiesce.audit.observation import CODES, MOST_TOKENS, Answer, Outcome, Usage, is_refusal, known
from quiesce.audit.options import Options
from quiesce.audit.plan import Arm, Ask
from quiesce.audit.target import Target
from quiesce.errors import PeerUnusable, UsageError

FEW_WORDS, MANY_WORDS = 40, 200
TRIES = 2
"""Of a small question that was neither answered nor refused; each waits and asks again by itself when told to."""
_LONGEST_NAME = 120

LEAST_TOKENS_PER_CHAR, MOST_TOKENS_PER_CHAR = 0.05, 4
LEAST_TOKENS_PER_WORD = 0.5
"""Of our prompts, by any tokenizer. An endpoint that counts less would be asked longer prompts than it is worth."""

_MOST_FRAME_TOKENS = 1 << 16
"""Of what a template or a system prompt of the endpoint's own puts around a prompt."""

_OWNERS = frozenset({"quiesce", "vllm", "sglang", "llamacpp", "openai", "system", "library"})
_CONTEXT_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length")
_POOL_NAMES = ("max_total_num_tokens", "max_total_tokens")


async def advertised(endpoint: Endpoint, options: Options, *, is_dry: bool = False) -> Target:
    """What can be known without asking for an answer. Raises PeerUnusable; UsageError for a model that is not there.

    Some endpoints take names that they do not list; only a dry run cannot find that out by asking.
    """
    status = await endpoint.status("/v1/models")
    if status in (401, 403):
        raise PeerUnusable(
            f"{endpoint.url} wants an API key, or another one (HTTP {status}).",
            remedy="Give it with --api-key-file or QUIESCE_AUDIT_KEY.",
            took_effect=False,
        )
    if status in TRY_AGAIN:
        raise PeerUnusable(f"{endpoint.url} is busy, or starting (HTTP {status}).", remedy="Try again later.")
    models = _models(await endpoint.get("/v1/models"))
    model = _chosen(models, options.model)
    if is_dry and models and model not in models:
        raise UsageError(f"the endpoint lists no model {options.model} ({_listed(models)}).")
    info = await endpoint.get("/get_server_info") or await endpoint.get("/server_info")
    owner = known(str(model.get("owned_by", "")), _OWNERS)
    return Target(
        url=endpoint.url,
        model=str(model["id"]),
        server=owner if owner in _OWNERS else "",
        context_tokens=options.context_tokens
        or _first_count(_CONTEXT_NAMES, [model, _meta(model), info], "--context-tokens"),
        pool_tokens=options.pool_tokens or _first_count(_POOL_NAMES, [info], "--pool-tokens"),
    )


def _models(listed: dict[str, Any]) -> list[dict[str, Any]]:
    data = listed.get("data")
    entries = data if isinstance(data, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and _is_name(entry.get("id"))]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isprintable() and 0 < len(name) <= _LONGEST_NAME


def _chosen(models: Sequence[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The model of that name; the only one when none is wanted."""
    if wanted:
        return next((model for model in models if model["id"] == wanted), {"id": wanted})
    if len(models) == 1:
        return models[0]
    raise UsageError(f"which model is to be audited? ({_listed(models)})", remedy="Say it with --model.")


def _listed(models: Sequence[dict[str, Any]]) -> str:
    return ", ".join(str(model["id"]) for model in models[:10]) or "it lists none"


def _meta(model: dict[str, Any]) -> dict[str, Any]:
    """Where llama.cpp says more of its model."""
    meta = model.get("meta")
    return {"context_length": meta.get("n_ctx_train")} if isinstance(meta, dict) else {}


def _first_count(names: Iterable[str], places: Sequence[dict[str, Any]], option: str) -> int | None:
    """Raises PeerUnusable for a number that cannot be."""
    for name in names:
        for place in places:
            count = place.get(name)
            if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
                continue
            if count > MOST_TOKENS:
                raise PeerUnusable(
                    f"the endpoint says nonsense: its {name} is more than {MOST_TOKENS}.",
                    remedy=f"Give the true one with {option}.",
                    took_effect=False,
                )
            return count
    return None


# ---------------------------------------------------------------- asking


async def measured(endpoint: Endpoint, options: Options, target: Target) -> Target:
    """Which fields it takes, tokens by length, and the time to a first token. Raises PeerUnusable."""
    probing = Probing(endpoint, options)
    target, answer = await probing.accepted(target)
    if answer.usage.prompt_tokens:
        per_char = _per_char(answer.usage, probing.last_chars)
        target = msgspec.structs.replace(target, has_usage=True, tokens_per_char=per_char)
        target = await probing.with_tokenizer(target)
        target = await probing.with_filler(target)
    else:
        target = msgspec.structs.replace(target, has_usage=False)
    return msgspec.structs.replace(target, ttft_s=await probing.ttft_s(target), measured=True)


def _per_char(usage: Usage, chars: int) -> float:
    """Tokens by a prompt's characters. Raises PeerUnusable for a usage that cannot be."""
    tokens = usage.prompt_tokens or 0
    if not usage.can_be or tokens > MOST_TOKENS_PER_CHAR * chars + _MOST_FRAME_TOKENS:
        raise PeerUnusable(
            f"the endpoint says nonsense: its usage cannot be that of a prompt of {chars} characters.",
            remedy="Is this an endpoint of the OpenAI API? Ask it one short question with curl.",
        )
    return max(LEAST_TOKENS_PER_CHAR, tokens / chars)


class Probing:
    """A few small requests. Their markers are none of the plan's."""

    def __init__(self, endpoint: Endpoint, options: Options) -> None:
        self._endpoint = endpoint
        self._options = options
        self._draw = random.Random(f"survey {options.seed}")  # noqa: S311 - repeatable
        self.last_chars = 0
        self.requests = 0

    async def accepted(self, target: Target) -> tuple[Target, Answer]:
        """The richest form of a request that is answered. Only a refusal says that a form is not taken."""
        content = self._donor(target, 300)
        answer = Answer()
        for field in ("max_tokens", "max_completion_tokens"):
            for has_usage in (True, False):
                tried = msgspec.structs.replace(target, length_field=field, has_usage=has_usage)
                answer = await self._decided(tried, content)
                if answer.outcome is Outcome.FINISHED:
                    return tried, answer
        raise unusable(self._endpoint.url, answer)

    async def with_tokenizer(self, target: Target) -> Target:
        """Whether `/tokenize` counts a chat as answers do."""
        content = self._donor(target, 400)
        counted = await counted_tokens(self._endpoint, target, self._options, content)
        answer = await self._decided(target, content)
        return msgspec.structs.replace(
            target, has_tokenizer=counted is not None and counted == answer.usage.prompt_tokens
        )

    async def with_filler(self, target: Target) -> Target:
        few, many = [await self._filler_tokens(target, words) for words in (FEW_WORDS, MANY_WORDS)]
        if few is None or many is None or many <= few:
            return target
        slope = (many - few) / (MANY_WORDS - FEW_WORDS)
        slope = max(LEAST_TOKENS_PER_WORD, slope)
        return msgspec.structs.replace(target, tokens_per_word=slope, frame_tokens=few - slope * FEW_WORDS)

    async def _filler_tokens(self, target: Target, words: int) -> int | None:
        content = prompts.filler(mint(0, self._draw), words)
        if target.has_tokenizer:
            return await counted_tokens(self._endpoint, target, self._options, content)
        return (await self._decided(target, content)).usage.prompt_tokens

    async def ttft_s(self, target: Target) -> float:
        """The median of as many donors at once as there will be: what counts is how long it takes under that load."""
        asking = [
            self._ask(target, self._donor(target, target.chars_for(self._options.donor_tokens)))
            for _ in range(max(1, self._options.concurrency // 2))
        ]
        answers = await asyncio.gather(*asking)
        lost = [answer for answer in answers if answer.outcome is not Outcome.FINISHED]
        if 2 * len(lost) > len(answers):
            raise unusable(self._endpoint.url, lost[0])
        return median(answer.ttft_s or answer.total_s for answer in answers if answer.outcome is Outcome.FINISHED)

    def _donor(self, target: Target, chars: int) -> str:
        return prompts.donor(mint(0, self._draw), chars, self._draw)

    async def _decided(self, target: Target, content: str) -> Answer:
        """An answer, or a refusal. Raises PeerUnusable when neither comes: then nothing is known of what it takes."""
        answer = Answer()
        for _ in range(TRIES):
            answer = await self._ask(target, content)
            if answer.outcome is Outcome.FINISHED or is_refusal(answer.outcome, answer.status):
                return answer
        raise unusable(self._endpoint.url, answer)

    async def _ask(self, target: Target, content: str) -> Answer:
        self.requests += 1
        self.last_chars = len(content)
        ask = Ask(id=-self.requests, role="survey", arm=Arm.ALONE, content=content, max_tokens=8, own=())
        return await self._endpoint.ask(ask, target)


async def counted_tokens(endpoint: Endpoint, target: Target, options: Options, content: str) -> int | None:
    """What `/tokenize` makes of a prompt as it is asked here; None where there is no such thing."""
    said: dict[str, Any] = {"prompt": content}
    if options.api == "chat":
        said = {"messages": [{"role": "user", "content": content}]}
    count = (await endpoint.post("/tokenize", said | {"model": target.model})).get("count")
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < MOST_TOKENS
    return count if is_count else None


def unusable(url: str, answer: Answer) -> PeerUnusable:
    """Why no answer came, in our words: the endpoint's own might quote somebody."""
    why = f"HTTP {answer.status}" if answer.status else answer.outcome.value
    if code := known(answer.code, CODES):
        why += f", {code}"
    return PeerUnusable(
        f"{url} gave no streamed answer to a short question ({why}).",
        remedy="Is it busy, or starting? Ask it one with curl; --model and --api chat|completions may help.",
    )
