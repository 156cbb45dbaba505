"""A small OpenAI server with faults to choose from. Its answers are prose; a token is a word."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

CONTEXT_TOKENS = 600
FRAME_TOKENS = 5
OTHERS_TEXT = "Mrs Halloran's biopsy of 14 May is positive"
"""What another user was told. It must appear in no report."""

WORDS = re.findall(
    r"\w+",
    "the of and to in that is was for on with as by at from this have or had not are but some what there we can out "
    "other were all your when up use word how said each which their time will way about many then them would write "
    "like so these her long make thing see him two has look more day could go come did my sound no most number who "
    "over know water than call first people may down side been now find water rises clouds form when air cools",
)
_PHRASE = re.compile(r"(?:[A-Z][a-z]{7} ){2}[A-Z][a-z]{7}")


class Faults(msgspec.Struct, kw_only=True):
    """`leaks_every` n: each n-th answer shows `leaked` of the words of a marker that somebody else was given.

    `busy` requests are told to come again; all are, after `busy_from` answers. `starting`: so
    many small questions are answered by 503.
    """

    leaks_every: int = 0
    leaked_words: int = 3
    leaks_after_abort: bool = False
    diverges_every: int = 0
    answers_oversize: bool = False
    cuts_oversize: bool = False
    lies_in_usage: bool = False
    shares_cache: bool = False
    says_others_text: bool = False
    nonsense_from: int | None = None
    nonsense_tokens: int = 10**18
    context_tokens: int = CONTEXT_TOKENS
    keys: Sequence[str] = ()
    busy: int = 0
    busy_from: int | None = None
    refuses_usage: bool = False
    starting: int = 0
    has_tokenizer: bool = True


class FakeOpenAI:
    """`answered` counts; `left` counts clients that did not stay."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.answered = 0
        self.left = 0
        self.heard: Callable[[int], None] = lambda count: None
        self.bodies: list[dict[str, Any]] = []
        self.connections: set[tuple[str, int]] = set()
        self._phrases: list[str] = []
        self._owed: list[str] = []
        self._cached: dict[str, list[str]] = {}
        self.app = Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def models(self, request: Request) -> Response:
        if self.faults.keys and not self._tenant(request):
            return JSONResponse({}, 401)
        if self._is_starting():
            return JSONResponse({}, 503)
        return JSONResponse({"data": [{"id": "fake", "max_model_len": self.faults.context_tokens, "owned_by": "fake"}]})

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        if self._is_starting():
            return JSONResponse({}, 503)
        if not self.faults.has_tokenizer:
            return JSONResponse({}, 404)
        return JSONResponse({"count": _count(body["messages"][0]["content"])})

    async def chat(self, request: Request) -> Response:
        try:
            body = await request.json()
        except ClientDisconnect:
            return Response()
        self.bodies.append(body)
        if request.client is not None:
            self.connections.add((request.client.host, request.client.port))
        prompt = body["messages"][0]["content"]
        if self.faults.refuses_usage and "stream_options" in body:
            return JSONResponse({"error": {"code": "invalid_value"}}, 400)
        if self.faults.busy or self.answered == self.faults.busy_from:
            self.faults.busy = max(0, self.faults.busy - 1)
            return JSONResponse({"error": {"code": "rate_limit_exceeded"}}, 429, {"retry-after": "0"})
        too_long = _count(prompt) + body["max_tokens"] > CONTEXT_TOKENS
        if too_long and not (self.faults.answers_oversize or self.faults.cuts_oversize):
            said = OTHERS_TEXT if self.faults.says_others_text else "context_length_exceeded"
            return JSONResponse({"error": {"message": said, "code": said}}, 400)
        return StreamingResponse(self._events(request, body, prompt), media_type="text/event-stream")

    async def _events(self, request: Request, body: dict[str, Any], prompt: str) -> AsyncIterator[bytes]:
        own = _PHRASE.findall(prompt)
        cached = self._cached_tokens(self._tenant(request) or "", prompt)
        words = self._answer(prompt, own, body["max_tokens"])
        whole = False
        try:
            for word in words:
                yield _event({"choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}]})
                await asyncio.sleep(0.001 if "pass phrase" in prompt else 0)  # donors need time to leave in
            finish = OTHERS_TEXT if self.faults.says_others_text else "length"
            yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            if body.get("stream_options"):
                yield _event({"choices": [], "usage": self._usage(prompt, len(words), cached)})
            yield b"data: [DONE]\n\n"
            whole = True
        finally:
            self.left += not whole
            if not whole and self.faults.leaks_after_abort:
                self._owed += own[:1]
            self._phrases += [each for each in own[:1] if each not in self._phrases]

    def _answer(self, prompt: str, own: list[str], max_tokens: int) -> list[str]:
        self.answered += 1
        self.heard(self.answered)
        draw = random.Random(hashlib.sha256(prompt.encode()).digest())
        words = [draw.choice(WORDS) for _ in range(max_tokens)]
        if self.faults.says_others_text:
            words[1 : 1 + len(OTHERS_TEXT.split())] = OTHERS_TEXT.split()
        if self.faults.diverges_every and self.answered % self.faults.diverges_every == 0:
            words[-1] = "otherwise"
        if leaked := self._leaked(own):
            words[2 : 2 + self.faults.leaked_words] = leaked.lower().split()[: self.faults.leaked_words]
        return words[:max_tokens]

    def _leaked(self, own: list[str]) -> str:
        if self._owed:
            return self._owed.pop(0)
        others = [each for each in self._phrases if each not in own]
        every = self.faults.leaks_every
        return others[-1] if every and others and self.answered % every == 0 else ""

    def _usage(self, prompt: str, completion_tokens: int, cached: int) -> dict[str, Any]:
        prompt_tokens = _count(prompt)
        if self.faults.cuts_oversize:
            prompt_tokens = min(prompt_tokens, CONTEXT_TOKENS - completion_tokens)
        if self.faults.lies_in_usage and self.answered % 7 == 0:
            prompt_tokens += 3
        if self.faults.nonsense_from is not None and self.answered > self.faults.nonsense_from:
            prompt_tokens = self.faults.nonsense_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _cached_tokens(self, tenant: str, prompt: str) -> int:
        known = self._cached.setdefault("" if self.faults.shares_cache else tenant, [])
        alike = _count(prompt) // 16 * 16 if prompt in known else 0
        known.append(prompt)
        return alike

    def _is_starting(self) -> bool:
        self.faults.starting -= 1
        return self.faults.starting >= 0

    def _tenant(self, request: Request) -> str:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        return key if key in self.faults.keys else ""


def _count(prompt: str) -> int:
    return len(prompt.split()) + FRAME_TOKENS


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


@contextlib.asynccontextmanager
async def serving(faults: Faults | None = None) -> AsyncIterator[tuple[FakeOpenAI, str]]:
    """A fake on this loop, and its address."""
    fake = FakeOpenAI(faults or Faults())
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(fake.app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve([sock]))
    try:
        yield fake, f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        sock.close()
