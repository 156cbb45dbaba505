"""What the light installation leaves out, and how to get it."""

from __future__ import annotations

import importlib.util

from quiesce.errors import MachineLacksError, in_checkout

ENGINE_NEEDS = ("torch", "numba", "safetensors", "gguf")


def lacks(name: str) -> MachineLacksError:
    """The error for a library that is not installed."""
    return lacks_extra(name, "serve")


def lacks_extra(name: str, extra: str) -> MachineLacksError:
    """The error for a library of an extra that is not installed."""
    return MachineLacksError(f"this installation has no {name}, which is needed here.", remedy=in_checkout(extra))


def require_engine() -> None:
    """Look, without importing them, whether workers will find their libraries. Raises MachineLacksError."""
    for name in ENGINE_NEEDS:
        if importlib.util.find_spec(name) is None:
            raise lacks(name)
