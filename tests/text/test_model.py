from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.errors import ConfigurationError, RequestRejected
from quiesce.text import tiny
from quiesce.text.bounds import LengthBound
from quiesce.text.model import TextModel

from .vocabularies import byte_fallback, byte_level

TINY = TextModel.load("tiny")
LONG_TEXT = st.lists(st.sampled_from(["hello ", "wörld", "😀", "<|end|>", "<|en", "  \n", "a" * 200]), max_size=60)


def test_tiny_speaks_bytes_and_chatml() -> None:
    assert TINY.encode("é").tolist() == [0xC3, 0xA9]
    assert TINY.encode("é").dtype == np.uint32
    prompt = TINY.render_chat([{"role": "user", "content": "hi"}])
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert TINY.encode(prompt)[0] == tiny.IM_START
    assert TINY.eos_token_ids == tiny.EOS_TOKEN_IDS


@given(LONG_TEXT)
@settings(max_examples=60)
def test_bounds_never_exceed_the_truth(parts: list[str]) -> None:
    """A bound above the real length would refuse a request that fits."""
    text = "".join(parts)
    for tokenizer in (byte_level(), byte_level({"type": "NFC"})):
        bound, length = LengthBound(tokenizer), len(tokenizer.encode(text).ids)
        assert bound.cheap(text) <= length
        assert bound._settled_tokens(text[:-1]) <= length if len(text) > 1 else True


def test_bounds_say_nothing_about_tokenizers_they_do_not_understand() -> None:
    strange = LengthBound(byte_level({"type": "Lowercase"}))
    assert strange.cheap("a" * 10_000) == 0
    assert list(strange.growing("a b " * 100_000)) == []
    assert list(LengthBound(byte_fallback()).growing("a b " * 100_000)) == []


def test_a_text_that_is_far_too_long_is_refused_before_it_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 MB against a context of a million tokens."""
    monkeypatch.setattr(TINY, "_tokenizer", None)
    with pytest.raises(RequestRejected, match="has more than 1048576 tokens, which is the most that fits") as caught:
        TINY.encode("x" * 32_000_000, max_tokens=TINY.context_length)
    assert caught.value.code == "context_length_exceeded"


def test_a_beginning_is_enough_to_refuse() -> None:
    """The cheap bound does not suffice here (the longest token has 4 bytes), the first slice does."""
    bound = LengthBound(byte_level())
    text = "x y " * 100_000
    assert bound.cheap(text) < 120_000
    assert next(iter(bound.growing(text))) > 60_000


def test_the_exact_limit() -> None:
    assert len(TINY.encode("abc", max_tokens=3)) == 3
    with pytest.raises(RequestRejected, match="more than 3 tokens, which is the most that fits"):
        TINY.encode("abcd", max_tokens=3)


def directory(path: Path, **settings: object) -> Path:
    (path / "config.json").write_text(
        json.dumps({"max_position_embeddings": 64, "vocab_size": 301, "eos_token_id": [7, 8]})
    )
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    byte_level().save(str(path / "tokenizer.json"))
    return path


def test_a_directory_in_hugging_face_layout(tmp_path: Path) -> None:
    template = [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ eos_token }}"}]
    model = TextModel.load(str(directory(tmp_path, chat_template=template, eos_token={"content": "<|end|>"})))
    assert (model.context_length, model.vocab_size, model.eos_token_ids) == (64, 301, (7, 8))
    assert model.render_chat([]) == "<|end|>"
    detokenizer = model.detokenizer()
    assert detokenizer.push(model.encode("hello<|end|>").tolist()) == "hello"


def test_a_template_file_wins_over_the_field(tmp_path: Path) -> None:
    (directory(tmp_path, chat_template="field") / "chat_template.jinja").write_text("file")
    assert TextModel.load(str(tmp_path)).render_chat([]) == "file"


def test_without_a_template_there_is_no_chat(tmp_path: Path) -> None:
    with pytest.raises(RequestRejected, match="no chat template"):
        TextModel.load(str(directory(tmp_path))).render_chat([])


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_damaged_files_are_configuration_errors(tmp_path: Path, name: str) -> None:
    (directory(tmp_path) / name).write_text("{")
    with pytest.raises(ConfigurationError, match=name):
        TextModel.load(str(tmp_path))
