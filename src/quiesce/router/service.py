"""What all endpoints share: the model's text side, the workers, the counters."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from quiesce.api.asked import Asked, Prompt
from quiesce.errors import RequestRejected
from quiesce.protocol.dispatch import Sampling
from quiesce.router.access import AdminKey, ApiKeys
from quiesce.router.calling import Calling
from quiesce.router.echo import Echo
from quiesce.router.failures import ClientGone
from quiesce.router.fleet import Fleet
from quiesce.router.generation import Generation
from quiesce.router.grammar_door import GrammarDoor
from quiesce.router.intake import Intake
from quiesce.router.meter import Meter
from quiesce.router.order import Order, mint_seed
from quiesce.router.pairs import limits_of
from quiesce.router.quotas import Quotas, Visit
from quiesce.router.readiness import Readiness
from quiesce.router.running import Running
from quiesce.router.settings import RouterSettings
from quiesce.router.stopping import Stopping
from quiesce.router.tenants import ANYBODY, Tenant
from quiesce.router.turns import Turns
from quiesce.text.model import TextModel, TokenIds

P = ParamSpec("P")
T = TypeVar("T")

_TOKENIZER_THREADS = 2
_TAIL_TOKENS = 16
_AT_ONCE_BYTES = 64 << 10


class Service:
    """Lives as long as the router. `close` ends the threads that tokenise, and the process that checks grammars."""

    def __init__(self, settings: RouterSettings, text: TextModel, fleet: Fleet, meter: Meter) -> None:
        self.settings = settings
        self.text = text
        self.fleet = fleet
        self.meter = meter
        self.keys = ApiKeys(settings.api_key, Path(settings.tenants) if settings.tenants else None)
        self.admin = AdminKey(settings, self.keys)
        self.quotas = Quotas()
        self.turns = Turns(fleet, settings, meter)
        self.model_name = settings.served_model_name or text.name
        self.readiness = Readiness(fleet, text)
        self.stopping = Stopping(fleet)
        self.intake = Intake(settings)
        self._grammars = GrammarDoor(settings.model)
        self.calling = Calling(text, settings.tool_call_format)
        self.running = Running()
        self._after_handoff = settings.on_disconnect == "after-handoff"
        self._threads = ThreadPoolExecutor(_TOKENIZER_THREADS, thread_name_prefix="tokenize")

    async def close(self) -> None:
        await self._grammars.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def why_not_ready(self) -> str:
        """ "" when the server can answer and will; otherwise the reason."""
        return "the server is stopping" if self.stopping.leaving else self.readiness.why_not()

    def check_model(self, name: str | None) -> None:
        """Raises RequestRejected (404) for a model that is not served here; no name means the one that is.

        What was given to --model is a name too: people who serve a directory or a file ask for it by its path.
        """
        if name not in (None, self.model_name, self.text.name, self.settings.model):
            raise RequestRejected(
                f"The model {name[:200]!r} does not exist; this server has {self.model_name!r}.",
                code="model_not_found",
                status=404,
                param="model",
            )

    @property
    def longest_tokens(self) -> int:
        """The longest context of any worker that is here."""
        known = [limits_of(link).context_length for link in self.fleet.present]
        return max(known, default=self.text.context_length)

    async def parsed(self, read: Callable[[bytes, int], Asked], body: bytes) -> Asked:
        """What `body` asks for, read off the loop when it is large. Raises RequestRejected."""
        if len(body) <= _AT_ONCE_BYTES:
            return read(body, self.longest_tokens)
        return await self.on_thread(read, body, self.longest_tokens)

    async def orders(self, asked: Asked, tenant: Tenant = ANYBODY) -> list[Order]:
        """One for each prompt, tokenised off the loop. Raises RequestRejected for a prompt that cannot be served."""
        wanted = self.calling.grammar(asked)
        grammar = await self._grammars.grammar(wanted, tenant.name) if wanted else ""
        seed = mint_seed() if asked.seed is None else asked.seed & ((1 << 63) - 1)
        prompts = await self.on_thread(self._prompts, asked, self.longest_tokens)
        sampling = _sampling(asked, seed, grammar)
        return [_order(asked, token_ids, sampling, tenant) for token_ids in prompts]

    async def on_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Tokenising takes long: beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*args, **kwargs))

    @contextlib.contextmanager
    def visit(self, tenant: Tenant) -> Iterator[Visit]:
        """A tenant's request, within its limits and counted. Raises RequestRejected when it has no more to spend."""
        outcome, used = "failed", (0, 0)
        try:
            with self.quotas.visit(tenant) as visit:
                try:
                    yield visit
                finally:
                    used = visit.used
            outcome = "finished"
        except RequestRejected as error:
            outcome = "rejected"
            self.meter.refused(tenant.name, error.code)
            raise
        except (ClientGone, asyncio.CancelledError):
            outcome = "cancelled"
            raise
        finally:
            self.meter.visited(tenant.name, outcome, *used)

    def echo(self, prompt: Prompt, *, tells: bool) -> Echo:
        """A completion's prompt as its client reads it."""
        text = prompt if isinstance(prompt, str) else self.text.decode([t for t in prompt if isinstance(t, int)])
        return Echo(text, self.text.detokenizer(), tells=tells)

    def generation(self, order: Order, *, bounded: bool = True) -> Generation:
        """A fresh one; nothing has begun yet. Raises GenerationFailed when the server stops.

        One that is not `bounded` belongs to a request that was let in: no queue is too long for it.
        """
        self.stopping.check()
        return Generation(
            self.fleet,
            order,
            self.settings.retries,
            turns=self.turns,
            bounded=bounded,
            after_handoff=self._after_handoff,
        )

    # ------------------------------------------------------------ on a tokenising thread

    def _prompts(self, asked: Asked, longest: int) -> list[TokenIds]:
        self.check_range(max(asked.stop_token_ids, default=0), "stop_token_ids")
        self.check_range(max((token for token, _ in asked.logit_bias), default=0), "logit_bias")
        tools = self.calling.shown(asked)
        prompts = [self.token_ids(prompt, longest, tools) for prompt in asked.prompts]
        for token_ids in prompts:
            if not len(token_ids):
                raise RequestRejected("The prompt is empty.", code="invalid_value", param=_prompt_of(asked))
            self.check_range(int(token_ids.max()), _prompt_of(asked))
        return prompts

    def token_ids(self, prompt: Prompt, longest: int, tools: Sequence[Mapping[str, Any]] = ()) -> TokenIds:
        """uint32 (tokens,). Raises RequestRejected for a text of more than `longest` tokens."""
        if isinstance(prompt, str):
            return self.text.encode(prompt, max_tokens=longest)
        messages = [message for message in prompt if isinstance(message, dict)]
        if messages:
            rendered = self.text.render_chat(messages, tools=tools)
            return self.text.encode(rendered, add_special=False, max_tokens=longest)
        return np.array(prompt, dtype=np.uint32)

    def check_range(self, largest: int, param: str) -> None:
        """Raises RequestRejected for a token id that is none of the model's."""
        if largest >= self.text.vocab_size:
            raise RequestRejected(
                f"Token id {largest} is outside of the vocabulary of {self.text.vocab_size}.",
                code="invalid_token_id",
                param=param,
            )


def _prompt_of(asked: Asked) -> str:
    return "messages" if asked.is_chat else "prompt"


def _order(asked: Asked, token_ids: TokenIds, sampling: Sampling, tenant: Tenant) -> Order:
    return Order(
        token_ids=token_ids.astype("<u4").tobytes(),
        prompt_tokens=len(token_ids),
        tail=tuple(token_ids[-_TAIL_TOKENS:].tolist()),
        sampling=sampling,
        max_tokens=asked.max_tokens,
        usual_max_tokens=_least(asked.usual_max_tokens, tenant.max_tokens),
        stop_token_ids=asked.stop_token_ids,
        ignore_eos=asked.ignore_eos,
        timeout_s=asked.timeout_s,
        tells_prompt=asked.echo and asked.logprobs is not None,
        tenant=tenant,
        priority=tenant.served_priority(asked.priority),
        cache_salt=asked.cache_salt,
        kept=not asked.stream,
    )


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _sampling(asked: Asked, seed: int, grammar: str) -> Sampling:
    return Sampling(
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        seed=seed,
        min_p=asked.min_p,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        repetition_penalty=asked.repetition_penalty,
        min_tokens=asked.min_tokens,
        logit_bias=asked.logit_bias,
        logprobs=asked.logprobs,
        grammar=grammar,
    )
