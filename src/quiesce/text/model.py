"""A model as text sees it: tokenizer, chat template, limits. No weights, no torch."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from quiesce.errors import ConfigurationError, RequestRejected
from quiesce.text import catalog, tiny
from quiesce.text.bounds import LengthBound
from quiesce.text.detokenizer import Detokenizer
from quiesce.text.json_file import read_json
from quiesce.text.spelling import Spelling
from quiesce.text.templates import ChatTemplate
from quiesce.text.tool_calls import detect

TokenIds = npt.NDArray[np.uint32]


class TextModel:
    """Text to tokens and back. Thread-safe: `encode` is meant for a thread beside the event loop."""

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        *,
        eos_token_ids: Sequence[int],
        context_length: int,
        chat_template: ChatTemplate | None = None,
        tool_template: ChatTemplate | None = None,
        vocab_size: int | None = None,
    ) -> None:
        self.name = name
        self.eos_token_ids = tuple(eos_token_ids)
        self.context_length = context_length
        self.vocab_size = vocab_size or tokenizer.get_vocab_size()
        self._tokenizer = tokenizer
        self._template = chat_template
        self._tool_template = tool_template or (chat_template if chat_template and chat_template.takes_tools else None)
        self.call_format = detect(self._tool_template.source) if self._tool_template else None
        self._bound = LengthBound(tokenizer)
        self._spelling = Spelling(tokenizer, byte_level=self._bound.byte_level)
        added = tokenizer.get_added_tokens_decoder()
        self._special = {token_id: token.content for token_id, token in added.items() if token.special}

    @classmethod
    def load(cls, model: str) -> TextModel:
        """By the names that `catalog.resolve` knows. Raises ConfigurationError, MachineLacksError."""
        source = catalog.resolve(model)
        if source.kind == tiny.NAME:
            return _tiny()
        return _from_directory(source.name, catalog.prepare(source))

    def encode(self, text: str, *, add_special: bool = True, max_tokens: int | None = None) -> TokenIds:
        """uint32 (tokens,). Raises RequestRejected (context_length_exceeded), early, beyond `max_tokens`."""
        if max_tokens is not None:
            self._refuse_longer(text, max_tokens)
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special)[0]
        if max_tokens is not None and len(encoding) > max_tokens:
            raise _too_long(f"has {len(encoding)} tokens, but at most {max_tokens} fit")
        return np.array(encoding.ids, dtype=np.uint32)

    @property
    def takes_tools(self) -> bool:
        """Whether a chat template of the model shows it tools, its own calls and their results."""
        return self._tool_template is not None

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt of a conversation. Raises RequestRejected: no template for it, or it refuses the messages."""
        if self._template is None and self._tool_template is None:
            raise RequestRejected(
                f"Model {self.name} has no chat template; use /v1/completions.",
                code="no_chat_template",
                param="messages",
            )
        with_tools = bool(tools) or any(message["role"] == "tool" or "tool_calls" in message for message in messages)
        template = self._tool_template if with_tools else self._template or self._tool_template
        if template is None:
            raise RequestRejected(
                f"Model {self.name} cannot use tools: its chat template does not show them.",
                code="unsupported_parameter",
                param="tools" if tools else "messages",
            )
        return template.render(messages, add_generation_prompt, tools)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of whole token ids, special tokens included."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        return text

    def spell(self, token_id: int) -> bytes:
        """One token's bytes; alone they need not be whole characters."""
        return self._spelling.spell(token_id)

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that stand for no text."""
        return frozenset(self._special)

    @property
    def special_tokens(self) -> dict[str, int]:
        """The same by what they are called."""
        return {content: token_id for token_id, content in self._special.items()}

    def detokenizer(self, prompt_tail: Sequence[int] = (), shown: Collection[str] = ()) -> Detokenizer:
        """A fresh one for one answer; `prompt_tail` is the end of the prompt, a few tokens are enough.

        Special tokens are no text, except for those that are `shown`.
        """
        hidden = frozenset(token_id for token_id, content in self._special.items() if content not in shown)
        return Detokenizer(self._tokenizer, hidden, prompt_tail)

    def _refuse_longer(self, text: str, max_tokens: int) -> None:
        """A bound is a bound: where counting stopped is no number to tell anybody."""
        bounds = itertools.chain([self._bound.cheap(text)], self._bound.growing(text))
        if any(at_least > max_tokens for at_least in bounds):
            raise _too_long(f"has more than {max_tokens} tokens, which is the most that fits")


def _too_long(what: str) -> RequestRejected:
    return RequestRejected(
        f"The prompt {what}.",
        code="context_length_exceeded",
        param="messages",
    )


def _tiny() -> TextModel:
    return TextModel(
        tiny.NAME,
        Tokenizer.from_str(tiny.tokenizer_json()),
        eos_token_ids=tiny.EOS_TOKEN_IDS,
        context_length=tiny.CONTEXT_LENGTH,
        chat_template=ChatTemplate(tiny.CHAT_TEMPLATE, {}),
        vocab_size=tiny.USED_TOKENS,
    )


def _from_directory(name: str, directory: Path) -> TextModel:
    config = read_json(directory / "config.json")
    generation = read_json(directory / "generation_config.json", required=False)
    settings = read_json(directory / "tokenizer_config.json", required=False)
    templates = {
        name: ChatTemplate(source, _special_tokens(settings))
        for name, source in _template_sources(directory, settings).items()
    }
    return TextModel(
        name,
        _read_tokenizer(directory / "tokenizer.json"),
        eos_token_ids=_token_ids(generation.get("eos_token_id", config.get("eos_token_id"))),
        context_length=int(config["max_position_embeddings"]),
        chat_template=templates.get("default"),
        tool_template=templates.get("tool_use"),
        vocab_size=int(config["vocab_size"]),
    )


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ConfigurationError([f"{path} cannot be read: {error}"]) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _template_sources(directory: Path, settings: dict[str, Any]) -> dict[str, str]:
    """`default`, and sometimes `tool_use`: a file of its own, or a field, a string or a list of named templates."""
    file = directory / "chat_template.jinja"
    if file.is_file():
        return {"default": file.read_text(encoding="utf-8")}
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {str(entry["name"]): str(entry["template"]) for entry in template}
        return {name: source for name, source in named.items() if name in ("default", "tool_use")}
    return {"default": template} if template else {}


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """`bos_token`, `eos_token` and so on, each a string or an object with `content`."""
    tokens = {key: value for key, value in settings.items() if key.endswith("_token")}
    texts = {key: value["content"] if isinstance(value, dict) else value for key, value in tokens.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}
