"""Whether a scenario file tells what happens now; and the file as it would tell it."""

from __future__ import annotations

import difflib
from pathlib import Path

from quiesce.errors import UsageError
from quiesce.lab.mutants.registry import BY_NAME
from quiesce.lab.patches import Patch
from quiesce.lab.scenario.format import Scenario, parse
from quiesce.lab.scenario.replay import replayed


def read(path: Path) -> Scenario:
    """Raises UsageError for a file that is no scenario."""
    return parse(path.read_text(encoding="utf-8"), path.name)


def patches_of(scenario: Scenario, path: str) -> tuple[Patch, ...]:
    """What `without:` leaves out. Raises UsageError for a name that no mutant has."""
    if not scenario.without:
        return ()
    if scenario.without not in BY_NAME:
        near = difflib.get_close_matches(scenario.without, BY_NAME, 3)
        raise UsageError(f"{path}: no mutant is called '{scenario.without}'. Near: {', '.join(near) or 'none'}.")
    return BY_NAME[scenario.without].patches


def retold(path: Path) -> tuple[Scenario, Scenario]:
    """A file's scenario as recorded, and as it comes out now."""
    scenario = read(path)
    return scenario, replayed(scenario, patches_of(scenario, path.name), path.name)
