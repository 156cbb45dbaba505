"""Which safetensors files hold a model's weights, and whether they are whole. Reads headers only; needs no torch."""

from __future__ import annotations

import json
from pathlib import Path

from quiesce.errors import ConfigurationError

INDEX = "model.safetensors.index.json"
_OTHER_FORMATS = ("*.bin", "*.pt", "*.pth", "*.msgpack", "*.h5")
_LENGTH_BYTES = 8


def tensor_files(directory: Path) -> dict[str, str]:
    """File of each tensor by the index; `{"": file}` for a single file, whose names are inside.

    Raises ConfigurationError for other formats, for an index that cannot be used, and for files that are cut short.
    """
    files = _listed(directory)
    problems = [problem for file in sorted(set(files.values())) if (problem := _damage(directory / file))]
    if problems:
        raise ConfigurationError(problems)
    return files


def _listed(directory: Path) -> dict[str, str]:
    index = directory / INDEX
    if index.is_file():
        files = _read_index(index)
        outside = [file for file in files.values() if Path(file).name != file]
        if outside:
            raise ConfigurationError([f"{index} names a file outside its directory: {outside[0]}"])
        return files
    single = sorted(file.name for file in directory.glob("*.safetensors"))
    if len(single) != 1:
        raise ConfigurationError([_lack(directory, len(single))])
    return {"": single[0]}


def _read_index(index: Path) -> dict[str, str]:
    try:
        files = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {str(tensor): str(file) for tensor, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError([f"{index} cannot be read ({error!r}): download it again"]) from error


def _lack(directory: Path, found: int) -> str:
    others = [file.name for pattern in _OTHER_FORMATS for file in sorted(directory.glob(pattern))]
    if found or not others:
        return f"{directory} has {found or 'no'} .safetensors files and no {INDEX}"
    return (
        f"{directory} has its weights as {others[0]}, which can run code when it is loaded; only safetensors is read. "
        f'Convert it once with transformers: AutoModelForCausalLM.from_pretrained("{directory}")'
        '.save_pretrained("NEW_DIRECTORY", safe_serialization=True), and copy the tokenizer files there'
    )


def _damage(file: Path) -> str:
    """Why the file cannot be what was published, or "": its header says how long the rest is."""
    try:
        n_bytes = file.stat().st_size
        expected = _expected_bytes(file)
    except FileNotFoundError:
        return f"{file} is missing: download it again"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{file} is no safetensors file, or its beginning is damaged: download it again"
    if n_bytes < expected:
        return f"{file} is cut short ({n_bytes:,} of {expected:,} bytes): download it again"
    return ""


def _expected_bytes(file: Path) -> int:
    """Header and data, as the header has it."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if length > file.stat().st_size:
            return _LENGTH_BYTES + length
        header = json.loads(stream.read(length))
    ends = [int(tensor["data_offsets"][1]) for name, tensor in header.items() if name != "__metadata__"]
    return _LENGTH_BYTES + length + max(ends, default=0)
