"""The backend under test: one that the registry knows, or `package.module:ATTRIBUTE` of one that is being written."""

from __future__ import annotations

import importlib

from quiesce.errors import ConfigurationError
from quiesce.transport import registry
from quiesce.transport.registry import Backend


def candidate(name: str) -> Backend:
    """Raises ConfigurationError when there is no such backend."""
    module, _, attribute = name.partition(":")
    if not attribute:
        return registry.backend(name)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError([f"{name!r} cannot be imported: {error}"]) from error
    if not isinstance(found, Backend):
        raise ConfigurationError([f"{name!r} is no transport.registry.Backend"])
    return found
