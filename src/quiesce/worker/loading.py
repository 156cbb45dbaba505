"""The engine of a worker: loaded and warm at its start, or long before, in a spare that becomes the worker."""

from __future__ import annotations

from quiesce.engine.engine import Engine
from quiesce.worker.settings import WorkerSettings


class Loaded:
    """An engine without a pool, and the settings that made it what it is. Used by one worker at most."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Raises ConfigurationError, MachineLacksError."""
        self._told = _told(settings)
        self._engine: Engine | None = load(settings)

    def take(self, settings: WorkerSettings) -> Engine:
        """The engine that these settings ask for: this one, or another when it would be wrong."""
        engine, self._engine = self._engine, None
        return engine if engine is not None and self._told == _told(settings) else load(settings)


def load(settings: WorkerSettings) -> Engine:
    """Raises ConfigurationError, MachineLacksError."""
    engine = Engine.load(
        settings.model,
        threads=settings.threads,
        deterministic=settings.deterministic,
        dtype=settings.dtype,
        context_length=settings.context_length,
    )
    engine.warm_up()
    return engine


def _told(settings: WorkerSettings) -> tuple[object, ...]:
    """All that `load` reads."""
    return settings.model, settings.threads, settings.deterministic, settings.dtype, settings.context_length
