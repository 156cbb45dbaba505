"""How `/v1/responses` writes an answer down: as items, whole or as the events by which they come about."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from quiesce.api import response_object as made
from quiesce.api.asked import Asked
from quiesce.api.logprobs import Spell
from quiesce.api.responses import ErrorBody, FinishReason, Usage
from quiesce.errors import invariant
from quiesce.router.answer import Called, Piece
from quiesce.router.dialects import Dialect, Finished
from quiesce.router.reply import Event


class ResponseDialect(Dialect):
    """One answer. Text between calls is a message of its own, so that the items are in the order they were said."""

    prefix = "resp_"
    prompt_field = "input"
    says_done = False

    def __init__(self, model: str, asked: Asked, spell: Spell) -> None:
        super().__init__(model, asked, spell)
        invariant(asked.repeated is not None, "a response repeats its request")
        self._repeated: Any = asked.repeated
        self._items: list[made.OutputItem] = []
        self._open = ""  # the id of the message that grows now
        self._text: list[str] = []
        self._call: made.OutputCall | None = None  # the call that grows now
        self._cut = False
        self._sequence = 0

    def opening(self, index: int, echo: Piece, usage: Usage | None) -> Iterator[Event]:
        for kind in (made.Created, made.InProgress):
            yield self._event(kind, response=self._response("in_progress"))

    def piece(self, index: int, piece: Piece, usage: Usage | None) -> Iterator[Event]:
        for part in piece.parts:
            yield from self._said(part) if isinstance(part, str) else self._called(part)

    def closing(self, index: int, finish_reason: FinishReason, usage: Usage | None) -> Iterator[Event]:
        self._cut = finish_reason == "length"
        yield from self._close_call("incomplete")
        if not self._items and not self._open:
            yield from self._open_message()
        yield from self._close_message("incomplete" if self._cut else "completed")

    def ending(self, usage: Usage) -> Iterator[Event]:
        kind = made.Incomplete if self._cut else made.Completed
        yield self._event(kind, response=self._over(usage))

    def failing(self, error: ErrorBody) -> Event:
        told = error.error
        return self._event(made.StreamFailed, code=told.code, message=told.message, param=told.param)

    def whole(self, answers: Sequence[Finished], usage: Usage) -> object:
        for answer in answers:
            _run(self.piece(0, answer.piece, None))
            _run(self.closing(0, answer.finish_reason, None))
        return self._over(usage)

    # ------------------------------------------------------------ items

    def _said(self, text: str) -> Iterator[Event]:
        yield from self._close_call("incomplete")
        if not self._open:
            yield from self._open_message()
        self._text.append(text)
        yield self._event(made.TextDelta, output_index=len(self._items), item_id=self._open, delta=text)

    def _open_message(self) -> Iterator[Event]:
        self._open = f"msg_{secrets.token_hex(12)}"
        item = made.OutputMessage(self._open, "in_progress", [])
        yield self._event(made.ItemAdded, output_index=len(self._items), item=item)
        yield self._in_item(made.PartAdded, part=made.OutputText(""))

    def _close_message(self, status: made.ItemStatus) -> Iterator[Event]:
        if not self._open:
            return
        text = "".join(self._text)
        item = made.OutputMessage(self._open, status, [made.OutputText(text)])
        yield self._in_item(made.TextDone, text=text)
        yield self._in_item(made.PartDone, part=made.OutputText(text))
        yield self._event(made.ItemDone, output_index=len(self._items), item=item)
        self._items.append(item)
        self._open, self._text = "", []

    def _called(self, call: Called) -> Iterator[Event]:
        if call.id:
            yield from self._close_message("completed")
            yield from self._close_call("incomplete")
            yield from self._open_call(call)
        if self._call and call.arguments:
            self._text.append(call.arguments)
            yield self._in_item(made.ArgumentsDelta, delta=call.arguments)
        if call.complete:
            yield from self._close_call("completed")

    def _open_call(self, call: Called) -> Iterator[Event]:
        self._call = made.OutputCall(f"fc_{secrets.token_hex(12)}", call.id, call.name, "", "in_progress")
        yield self._event(made.ItemAdded, output_index=len(self._items), item=self._call)

    def _close_call(self, status: made.ItemStatus) -> Iterator[Event]:
        """One that was not complete until now never will be."""
        if self._call is None:
            return
        text = "".join(self._text)
        item = msgspec.structs.replace(self._call, arguments=text, status=status)
        yield self._in_item(made.ArgumentsDone, name=item.name, arguments=text)
        yield self._event(made.ItemDone, output_index=len(self._items), item=item)
        self._items.append(item)
        self._call, self._text = None, []

    # ------------------------------------------------------------ events

    def _in_item(self, kind: type[made.ResponseEvent], **fields: Any) -> Event:
        item_id = self._call.id if self._call else self._open
        return self._event(kind, output_index=len(self._items), item_id=item_id, **fields)

    def _event(self, kind: type[made.ResponseEvent], **fields: Any) -> Event:
        event = kind(sequence_number=self._sequence, **fields)
        self._sequence += 1
        return Event(event, str(kind.__struct_config__.tag))

    def _over(self, usage: Usage) -> made.Response:
        over = self._response("incomplete" if self._cut else "completed")
        details = made.IncompleteDetails() if self._cut else None
        return msgspec.structs.replace(over, usage=_usage(usage), incomplete_details=details)

    def _response(self, status: made.ResponseStatus) -> made.Response:
        return made.Response(
            id=self.id,
            created_at=self._created,
            model=self._model,
            output=list(self._items),
            status=status,
            **msgspec.structs.asdict(self._repeated),
        )


def _run(events: Iterable[Event]) -> None:
    """For what they leave behind."""
    for _ in events:
        pass


def _usage(usage: Usage) -> made.ResponseUsage:
    cached = made.InputTokensDetails(usage.prompt_tokens_details.cached_tokens)
    written = made.OutputTokensDetails()
    return made.ResponseUsage(usage.prompt_tokens, cached, usage.completion_tokens, written, usage.total_tokens)
