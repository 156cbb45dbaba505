"""Which libraries of transports can be loaded on this machine."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

IMPORTS = {"mooncake": "import mooncake.engine", "nixl": "import nixl_cu12._bindings"}


def skip_unless_here(backend: str) -> None:
    if not _is_here(backend):
        pytest.skip(f"the library of {backend} cannot be loaded here")


@functools.cache
def _is_here(backend: str) -> bool:
    return subprocess.run([sys.executable, "-c", IMPORTS.get(backend, "")], capture_output=True).returncode == 0
