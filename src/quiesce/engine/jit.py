"""How kernels are compiled: numba, cached on disk in the model cache.

Several processes start at once, and numba's cache of one function could be overwritten by another compilation of the
same function for other constants, so all compilation happens in `compiling()`, one process at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba

from quiesce.engine.kernel_cache import kernel_directory
from quiesce.text.model_cache import exclusive

Kernel = TypeVar("Kernel", bound=Callable[..., None])

_njit: Any = numba.njit
_settings: Any = numba.config


@contextmanager
def compiling(shape: str) -> Iterator[None]:
    """Kernels declared inside are compiled, or loaded from the cache, for constants that `shape` names."""
    directory = kernel_directory(shape)
    with exclusive(directory):
        before = _settings.CACHE_DIR
        _settings.CACHE_DIR = os.environ.get("NUMBA_CACHE_DIR") or str(directory)
        try:
            yield
        finally:
            _settings.CACHE_DIR = before


def kernel(signature: str, *, reorder: bool = False) -> Callable[[Kernel], Kernel]:
    """Compile now for exactly this signature, releasing the GIL while running. Declare inside `compiling()`.

    `reorder` lets the compiler reorder sums, always in the same way for the same kernel and length.
    """

    def compiled(function: Kernel) -> Kernel:
        jitted: Kernel = _njit(signature, nogil=True, cache=True, error_model="numpy", fastmath=reorder)(function)
        return jitted

    return compiled


def inlined(function: Kernel) -> Kernel:
    """A part of a kernel, compiled into its callers."""
    part: Kernel = _njit(inline="always", error_model="numpy")(function)
    return part
