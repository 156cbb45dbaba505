"""A mutant: the machines with one rule left out, as patches of functions, and who must notice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from quiesce.lab.explorer.config import Config
from quiesce.lab.patches import Patch, patched


@dataclass(frozen=True)
class Mutant:
    """`rule` is PROTOCOL's, or names what else is left out.

    `world` is explored until it shows `symptom` (a regular expression at the violation's beginning). `check` is the
    name of a function in the tests of the protocol that must fail. At least one of the two is there. `alone` is why
    nobody else can see it.
    """

    rule: str
    name: str
    patches: tuple[Patch, ...]
    symptom: str = ""
    world: Config | None = None
    check: str = ""
    alone: str = ""

    def applied(self) -> AbstractContextManager[None]:
        """The whole process runs the mutant within this block."""
        return patched(*self.patches)


def explored(rule: str, name: str, symptom: str, world: Config, *patches: Patch) -> Mutant:
    return Mutant(rule, name, patches, symptom, world)


def checked(rule: str, name: str, check: str, *patches: Patch, alone: str = "") -> Mutant:
    return Mutant(rule, name, patches, check=check, alone=alone)


# ---------------------------------------------------------------- the simplest changes


def deaf(turn: Any, *subject: Any) -> None:
    """A machine that does nothing here."""
    return


def always(*given: Any) -> bool:
    return True


def never(*given: Any) -> bool:
    return False
