"""Tools in one request: what the chat template is shown, what the answer must match, and how its calls are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quiesce.api.asked import Asked
from quiesce.api.formats import Grammar
from quiesce.api.reading import invalid, read, refuse_deeper
from quiesce.errors import RequestRejected
from quiesce.router.answer import Answer, Calls, NoAnswer
from quiesce.text.call_grammar import call_grammar
from quiesce.text.model import TextModel
from quiesce.text.tool_calls import FORMATS


class Calling:
    """For one model. `form` is what `--tool-call-format` says: a format's name, or auto for the template's."""

    def __init__(self, text: TextModel, form: str) -> None:
        self._text = text
        self._form = text.call_format if form == "auto" else FORMATS[form]

    def shown(self, asked: Asked) -> Sequence[Mapping[str, Any]]:
        """The tools as the chat template takes them. Raises RequestRejected when the model's calls could not be read.

        That a template does not show tools is found by `TextModel.render_chat`.
        """
        if asked.tools is None:
            return ()
        if self._text.takes_tools and self._form is None:
            raise RequestRejected(
                f"How model {self._text.name} writes calls of tools is not known; see --tool-call-format.",
                code="unsupported_parameter",
                param="tools",
            )
        return asked.tools.shown

    def grammar(self, asked: Asked) -> Grammar | None:
        """What the answer must match: calls if it must call, what was asked for or calls if it may, or anything.

        Raises RequestRejected for what cannot stand beside tools.
        """
        use, form = asked.tools, asked.grammar
        if use is None or self._form is None or not (use.forced or form):
            return form
        if form and (use.forced or form.kind != "json" or self._form.bare):
            raise invalid(f"tools and {form.param} both say what the answer must match.", form.param)
        schema = _schema(form) if form else None
        may = {name: schema for name, schema in use.schemas.items() if name in use.forced or not use.forced}
        special = self._text.special_tokens
        text = call_grammar(self._form, may, several=use.parallel, special=special, otherwise=schema)
        return Grammar("grammar", text, form.param if form else "tools")

    def answer(self, asked: Asked, tail: Sequence[int], offset: int) -> Answer:
        """A fresh one; `tail` is the end of its prompt, and `offset` is where its text begins."""
        if asked.prompt_alone:
            return NoAnswer(self._text.detokenizer(tail), ())
        if asked.tools is None or self._form is None:
            return Answer(self._text.detokenizer(tail), asked.stop, asked.min_tokens, offset)
        use = asked.tools
        calls = Calls(self._form, use.names, only_one=not use.parallel, forced=bool(use.forced))
        detokenizer = self._text.detokenizer(tail, (self._form.begins, self._form.ends))
        return Answer(detokenizer, asked.stop, asked.min_tokens, offset, calls)


def _schema(form: Grammar) -> dict[str, Any]:
    schema = read(form.text.encode(), dict[str, Any], form.param)
    refuse_deeper(schema, form.param)
    return schema
