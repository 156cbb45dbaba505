"""`quiesce models`: what `--model` can name on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from quiesce.errors import QuiesceError
from quiesce.text.catalog import DEFAULT_MODEL, resolve
from quiesce.text.model_cache import cache_root, remove_made, size_bytes
from quiesce.units import show_bytes

Row = tuple[str, str, str]


@click.command(short_help="List models that --model can name.")
@click.option("--prune", is_flag=True, help="Remove converted models and compiled kernels; a start makes them again.")
def command(prune: bool) -> None:
    """List models: those that are known by name, and those converted earlier.

    --model also takes a Hugging Face directory, a .gguf file, and a hub id where a hub can be reached.
    """
    if prune:
        click.echo(f"removed {show_bytes(remove_made())} from {cache_root()}")
        return
    for model, what, state in [*known(), *converted(cache_root() / "models")]:
        click.echo(f"{model}\n    {what}; {state}")


def known() -> Iterator[Row]:
    """Models with a name of their own."""
    yield DEFAULT_MODEL, "SmolLM2-135M-Instruct, the default", _state(DEFAULT_MODEL)
    yield "tiny", "small random weights, any context length, for tests and demonstrations", "always there"


def converted(directory: Path) -> Iterator[Row]:
    """Directories in the model cache, each usable as --model."""
    for path in sorted(directory.glob("*/config.json")):
        yield str(path.parent), "converted earlier", show_bytes(size_bytes(path.parent))


def _state(model: str) -> str:
    try:
        source = resolve(model)
    except QuiesceError as missing:
        return str(missing)
    cached = source.directory is not None and any(source.directory.glob("*.safetensors"))
    return "converted" if cached else "installed; converted at first use"
