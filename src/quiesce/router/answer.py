"""An answer as it grows: tokens in, text out, until something ends it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

import msgspec

from quiesce.api.logprobs import Said
from quiesce.api.responses import FinishReason
from quiesce.protocol.dispatch import Tokens
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.text.detokenizer import Detokenizer
from quiesce.text.stops import StopMatcher
from quiesce.text.tool_calls import CallFormat, CallPart, CallReader


class Called(msgspec.Struct, frozen=True):
    """A call of a tool, the answer's `index`-th, or more of one: then `id`, which we mint, and `name` are "".

    `arguments` are text of a JSON object, which is `complete` with these.
    """

    index: int
    id: str
    name: str
    arguments: str
    complete: bool


class Piece(msgspec.Struct, frozen=True):
    """What can be shown now, in the order it was said, and the tokens that just came, if they are told of.

    The tokens' text may come in later pieces.
    """

    parts: tuple[str | Called, ...] = ()
    said: tuple[Said, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parts or self.said)

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def calls(self) -> tuple[Called, ...]:
        return tuple(part for part in self.parts if isinstance(part, Called))


def piece_of(parts: Iterable[str | Called], said: Iterable[Said]) -> Piece:
    """Neighbouring texts are one, and so is what there is of a call: it does not matter how tokens came."""
    runs = itertools.groupby((part for part in parts if part), _call_index)
    return Piece(tuple(_joined(list(run)) for _, run in runs), tuple(said))


def _call_index(part: str | Called) -> int | None:
    return None if isinstance(part, str) else part.index


def _joined(run: Sequence[str | Called]) -> str | Called:
    first = run[0]
    if isinstance(first, str):
        return "".join(part for part in run if isinstance(part, str))
    call = [part for part in run if isinstance(part, Called)]
    arguments = "".join(part.arguments for part in call)
    return msgspec.structs.replace(first, arguments=arguments, complete=call[-1].complete)


def said_of(token_id: int, offset: int, told: TokenLogprobs) -> Said:
    """A token as dialects tell of it."""
    return Said(token_id, offset, told.logprob, tuple(zip(told.top_ids, told.top_logprobs, strict=True)))


class Answer:
    """Counts tokens, cuts text at stop strings and reads calls of tools. `finish_reason` is None until it is over.

    Stop strings are not looked for in the text of the first `min_tokens` tokens. `offset` is where in what the client
    reads the answer's text begins.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: Sequence[str],
        min_tokens: int = 0,
        offset: int = 0,
        calls: Calls | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)
        self._min_tokens = min_tokens
        self._offset = offset
        self._calls = calls
        self.finish_reason: FinishReason | None = None
        self.completion_tokens = 0
        self.cached_tokens = 0

    def push(self, tokens: Tokens) -> Piece:
        """Take what decode sent."""
        self.cached_tokens = max(self.cached_tokens, tokens.cached_tokens)
        said: list[Said] = []
        parts: list[str | Called] = []
        for index, token_id in enumerate(tokens.token_ids):
            if index < len(tokens.logprobs):
                said.append(said_of(token_id, self._offset, tokens.logprobs[index]))
            parts += self._read(self._push_one(token_id))
            if self.finish_reason:
                return piece_of(parts, said)
        parts += self._read(self._end(tokens.finish))
        return piece_of(parts, said)

    def _push_one(self, token_id: int) -> str:
        text = self._detokenizer.push((token_id,))
        self._offset += len(text)
        self.completion_tokens += 1
        return self._searched(text) if self.completion_tokens > self._min_tokens else text

    def _searched(self, text: str) -> str:
        shown, stopped = self._stops.push(text)
        if stopped:
            self.finish_reason = "stop"
        return shown

    def _end(self, finish: str) -> str:
        """What is still to be shown when decode says that it was all."""
        if not finish:
            return ""
        shown = self._searched(self._detokenizer.flush())
        if not self.finish_reason:
            shown += self._stops.flush()
            self.finish_reason = "length" if finish == "length" else "stop"
        return shown

    def _read(self, text: str) -> Sequence[str | Called]:
        """Text and calls in what may be shown. The answer ends after its last call, if there is such a thing."""
        if self._calls is None:
            return (text,) if text else ()
        parts = self._calls.read(text, self.finish_reason)
        if self._calls.enough:
            self.finish_reason = "stop"
        if self._calls.all_complete and self.finish_reason == "stop":
            self.finish_reason = "tool_calls"
        return parts


class NoAnswer(Answer):
    """To a request for its prompt alone. What workers say nevertheless is not told."""

    def push(self, tokens: Tokens) -> Piece:
        self.cached_tokens = max(self.cached_tokens, tokens.cached_tokens)
        self.finish_reason = "length" if tokens.finish else None
        return Piece()


class Calls:
    """Reads an answer's calls and names them. `forced`: it is nothing else.

    `only_one`: what is said after the first one is not part of the answer, nor is a second one if that was torn.
    """

    def __init__(self, form: CallFormat, names: Collection[str], *, only_one: bool, forced: bool) -> None:
        self._form = form
        self._reader = CallReader(form, names, nothing_else=forced)
        self._only_one = only_one
        self._begun = self._complete = 0

    @property
    def enough(self) -> bool:
        return self._only_one and (self._complete > 0 or self._begun > 1)

    @property
    def all_complete(self) -> bool:
        """Whether there are calls, each can be made, and no further one was torn before it said what it calls."""
        torn = self._reader.torn and not self._only_one
        return self._begun > 0 and self._complete == self._begun and not torn

    def read(self, text: str, finish: FinishReason | None) -> list[str | Called]:
        """What is certain now; with `finish` all there is."""
        parts: list[str | Called] = []
        for part in [*self._reader.push(text), *(self._reader.flush() if finish else ())]:
            if self.enough:
                break
            named = part if isinstance(part, str) else self._named(part)
            if isinstance(named, str) or not (self._only_one and named.index):
                parts.append(named)
        return parts

    def _named(self, part: CallPart) -> Called:
        self._begun += bool(part.name)
        self._complete += part.ends
        new_id = self._form.mint_id() if part.name else ""
        return Called(self._begun - 1, new_id, part.name, part.arguments, part.ends)
