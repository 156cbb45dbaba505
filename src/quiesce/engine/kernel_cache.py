"""Where compiled kernels are kept. Needs no numba, so that a supervisor can say what a start will have to do."""

from __future__ import annotations

import hashlib
import os
from importlib import metadata
from pathlib import Path

from quiesce.engine.config import ModelConfig
from quiesce.text.model_cache import cache_root

_SOURCES = ("attention.py", "kernels.py", "vectors.py")


def shape_of(config: ModelConfig) -> str:
    """What kernels depend on; models of one shape share them."""
    return f"head{config.head_dim}-group{config.group}"


def kernel_directory(shape: str) -> Path:
    """For this code and this numba. Raises PackageNotFoundError without numba."""
    return cache_root() / "kernels" / f"{shape}-{_sources_key()}"


def are_compiled(config: ModelConfig) -> bool:
    """Whether kernels of this shape were compiled before; a guess for people, numba decides."""
    directory = Path(os.environ.get("NUMBA_CACHE_DIR") or kernel_directory(shape_of(config)))
    return any(directory.rglob("*.nbi"))


def _sources_key() -> str:
    """Numba notices changes of the file that declares a kernel, not of those it takes code from."""
    digest = hashlib.blake2b(metadata.version("numba").encode(), digest_size=8)
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()
