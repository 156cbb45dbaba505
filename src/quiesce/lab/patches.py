"""Other functions in the place of the product's, for as long as a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Patch = tuple[ModuleType | type, str, Any]
"""A module or class, a name in it, and what stands there instead."""


@contextmanager
def patched(*patches: Patch) -> Iterator[None]:
    """The whole process sees the patches within this block; a name that is patched twice has the last one."""
    before = [(module, name, getattr(module, name)) for module, name, _ in patches]
    try:
        for module, name, replacement in patches:
            setattr(module, name, replacement)
        yield
    finally:
        for module, name, honest in reversed(before):
            setattr(module, name, honest)
