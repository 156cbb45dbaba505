"""Races as text: prose, commands and the recorded outcome of each (docs/scenarios.md)."""

from quiesce.lab.scenario.record import write

__all__ = ["write"]
