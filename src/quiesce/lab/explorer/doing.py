"""How pure functions of a world's parts are called: plainly, or remembering what came of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from quiesce.lab.explorer.config import Config
from quiesce.lab.explorer.move import Move

Function = Callable[..., Any]


class Doing:
    """Calls `function(config, *parts)`."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, function: Function, *parts: Any) -> Any:
        return function(self.config, *parts)


class Remembering(Doing):
    """The same, once for all equal parts.

    A world's parts repeat far more often than worlds do. Functions are pure, so what came of them once is true for
    ever; equal results are one object, which makes comparing them free. One for each exploration: a mutant's results
    must not be remembered after it is gone.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._results: dict[Any, Any] = {}
        self._values: dict[Any, Any] = {}

    def __call__(self, function: Function, *parts: Any) -> Any:
        asked = (function, *parts)
        found = self._results.get(asked)
        if found is None:
            found = self._results[asked] = self._one(function(self.config, *parts))
        return found

    def _one(self, value: Any) -> Any:
        """The first of all equal ones."""
        if isinstance(value, msgspec.Struct):
            return self._values.setdefault(value, value)
        if isinstance(value, tuple) and not isinstance(value, Move):
            parts = [self._one(each) for each in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value
