"""How answers are written down: as a chat or as a completion, whole or in chunks."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from quiesce.api.asked import Asked
from quiesce.api.logprobs import Said, Spell, chat_logprobs, text_logprobs
from quiesce.api.responses import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChunkChoice,
    Delta,
    ErrorBody,
    FinishReason,
    FunctionCall,
    FunctionDelta,
    TextChoice,
    TextCompletion,
    TextLogprobs,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from quiesce.router.answer import Called, Piece
from quiesce.router.reply import Event

_Usage = Usage | msgspec.UnsetType | None


class Finished(msgspec.Struct, frozen=True):
    """A whole answer: what it says (the echoed prompt included), its tokens when told of, and why it ended."""

    piece: Piece
    finish_reason: FinishReason


class Dialect(ABC):
    """One response's fixed fields. `id` names it to the client and is nothing that workers know.

    Chunks bear `usage` when there is one to show; `spell` writes single tokens.
    """

    prefix: str
    prompt_field: str
    """The request's field that holds the prompt, for errors about its length."""
    says_done = True
    """Whether a stream says that it ends."""

    def __init__(self, model: str, asked: Asked, spell: Spell) -> None:
        self.id = f"{self.prefix}{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._model = model
        self._spell = spell
        self._with_logprobs = asked.logprobs is not None
        self._tells_usage = asked.include_usage
        self._no_usage: _Usage = None if asked.include_usage else msgspec.UNSET

    @abstractmethod
    def opening(self, index: int, echo: Piece, usage: Usage | None) -> Iterable[Event]:
        """What comes before any text of an answer."""

    @abstractmethod
    def piece(self, index: int, piece: Piece, usage: Usage | None) -> Iterable[Event]:
        """More of an answer."""

    @abstractmethod
    def closing(self, index: int, finish_reason: FinishReason, usage: Usage | None) -> Iterable[Event]:
        """Why an answer ended."""

    @abstractmethod
    def ending(self, usage: Usage) -> Iterable[Event]:
        """What follows when all answers have ended: how many tokens they took, if that is told."""

    def failing(self, error: ErrorBody) -> Event:
        """What ends a stream that cannot go on."""
        return Event(error)

    @abstractmethod
    def whole(self, answers: Sequence[Finished], usage: Usage) -> object:
        """All answers in one document."""


class ChatDialect(Dialect):
    prefix = "chatcmpl-"
    prompt_field = "messages"

    def opening(self, index: int, echo: Piece, usage: Usage | None) -> list[Event]:
        return self._chunk(ChunkChoice(Delta(role="assistant", content=""), None, index), usage)

    def piece(self, index: int, piece: Piece, usage: Usage | None) -> list[Event]:
        calls = [_call_delta(call) for call in piece.calls]
        delta = Delta(content=piece.text) if piece.text or not calls else Delta()
        delta = msgspec.structs.replace(delta, tool_calls=calls or None)
        return self._chunk(ChunkChoice(delta, None, index, self._logprobs(piece.said)), usage)

    def closing(self, index: int, finish_reason: FinishReason, usage: Usage | None) -> list[Event]:
        return self._chunk(ChunkChoice(Delta(), finish_reason, index), usage)

    def ending(self, usage: Usage) -> list[Event]:
        return [Event(ChatChunk(self.id, self._created, self._model, [], usage))] if self._tells_usage else []

    def whole(self, answers: Sequence[Finished], usage: Usage) -> object:
        choices = [
            ChatChoice(_message(answer.piece), answer.finish_reason, index, self._logprobs(answer.piece.said))
            for index, answer in enumerate(answers)
        ]
        return ChatCompletion(self.id, self._created, self._model, choices, usage)

    def _chunk(self, choice: ChunkChoice, usage: Usage | None) -> list[Event]:
        return [Event(ChatChunk(self.id, self._created, self._model, [choice], usage or self._no_usage))]

    def _logprobs(self, said: Sequence[Said]) -> ChatLogprobs | None:
        return chat_logprobs(said, self._spell) if self._with_logprobs else None


def _message(piece: Piece) -> AnswerMessage:
    if not piece.calls:
        return AnswerMessage(piece.text)
    calls = [ToolCall(call.id, FunctionCall(call.name, call.arguments)) for call in piece.calls]
    return AnswerMessage(piece.text or None, tool_calls=calls)


def _call_delta(call: Called) -> ToolCallDelta:
    """The first one of a call says whose the others are."""
    if not call.id:
        return ToolCallDelta(call.index, FunctionDelta(call.arguments))
    return ToolCallDelta(call.index, FunctionDelta(call.arguments, call.name), call.id, "function")


class CompletionDialect(Dialect):
    prefix = "cmpl-"
    prompt_field = "prompt"

    def opening(self, index: int, echo: Piece, usage: Usage | None) -> list[Event]:
        return self.piece(index, echo, usage) if echo else []

    def piece(self, index: int, piece: Piece, usage: Usage | None) -> list[Event]:
        return self._chunk(TextChoice(piece.text, None, index, self._logprobs(piece.said)), usage)

    def closing(self, index: int, finish_reason: FinishReason, usage: Usage | None) -> list[Event]:
        return self._chunk(TextChoice("", finish_reason, index), usage)

    def ending(self, usage: Usage) -> list[Event]:
        return [Event(TextCompletion(self.id, self._created, self._model, [], usage))] if self._tells_usage else []

    def whole(self, answers: Sequence[Finished], usage: Usage) -> object:
        choices = [
            TextChoice(answer.piece.text, answer.finish_reason, index, self._logprobs(answer.piece.said))
            for index, answer in enumerate(answers)
        ]
        return TextCompletion(self.id, self._created, self._model, choices, usage)

    def _chunk(self, choice: TextChoice, usage: Usage | None) -> list[Event]:
        return [Event(TextCompletion(self.id, self._created, self._model, [choice], usage or self._no_usage))]

    def _logprobs(self, said: Sequence[Said]) -> TextLogprobs | None:
        return text_logprobs(said, self._spell) if self._with_logprobs else None
