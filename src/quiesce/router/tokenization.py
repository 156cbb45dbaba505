"""`/tokenize` and `/detokenize`: the model's text side alone; no worker is asked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from quiesce.api.conversation import as_messages
from quiesce.api.logprobs import shown
from quiesce.api.reading import read
from quiesce.api.requests import DetokenizeBody, TokenizeBody
from quiesce.api.responses import Detokenized, Tokenized
from quiesce.api.tools import as_shown
from quiesce.errors import RequestRejected
from quiesce.router.body import read_body
from quiesce.router.service import Service


class Tokenization:
    """Both endpoints. What is longer than the context is refused, as it would be for an answer."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, request: Request) -> Response:
        body = read(await self._body(request), TokenizeBody)
        self._service.check_model(body.model)
        longest = self._service.longest_tokens
        tokens = await self._service.on_thread(self._encode, body, longest)
        strings = await self._service.on_thread(self._strings, tokens) if body.return_token_strs else None
        return _json(Tokenized(tokens, len(tokens), longest, strings))

    async def detokenize(self, request: Request) -> Response:
        body = read(await self._body(request), DetokenizeBody)
        self._service.check_model(body.model)
        self._check_length(len(body.tokens))
        self._service.check_range(max(body.tokens, default=0), "tokens")
        return _json(Detokenized(await self._service.on_thread(self._service.text.decode, body.tokens)))

    async def _body(self, request: Request) -> bytes:
        self._service.keys.check(request.headers)
        with self._service.intake.share() as share:
            return await read_body(request.headers, request.receive, share)

    def _check_length(self, tokens: int) -> None:
        longest = self._service.longest_tokens
        if tokens > longest:
            message = f"These are {tokens} tokens, but at most {longest} fit."
            raise RequestRejected(message, code="context_length_exceeded", param="tokens")

    # ------------------------------------------------------------ on a tokenising thread

    def _encode(self, body: TokenizeBody, longest: int) -> list[int]:
        text, special = self._prompt(body)
        wanted = special if body.add_special_tokens is None else body.add_special_tokens
        try:
            ids: list[int] = self._service.text.encode(text, add_special=wanted, max_tokens=longest).tolist()
        except RequestRejected as error:  # text does not know what it comes from and says "messages"
            param = "messages" if body.prompt is None else "prompt"
            raise RequestRejected(error.message, code=error.code, status=error.status, param=param) from None
        return ids

    def _prompt(self, body: TokenizeBody) -> tuple[str, bool]:
        """The text, and whether special tokens are usually added to it: a chat's template has its own."""
        if (body.prompt is None) == (body.messages is None):
            raise RequestRejected("Give either prompt or messages.", code="invalid_value", param="prompt")
        if body.prompt is not None:
            return body.prompt, True
        generation = body.add_generation_prompt is not False
        messages, tools = as_messages(body.messages or []), as_shown(body.tools or ())
        return self._service.text.render_chat(messages, generation, tools), False

    def _strings(self, tokens: Sequence[int]) -> list[str]:
        return [shown(self._service.text.spell(token)) for token in tokens]


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
