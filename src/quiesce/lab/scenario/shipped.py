"""The scenario files that come with the package."""

from __future__ import annotations

from pathlib import Path

from quiesce.errors import UsageError

FOLDER = Path(__file__).parent.parent / "scenarios"


def shipped() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def found(name: str) -> Path:
    """A path, or the name of a shipped file without its ending. Raises UsageError."""
    for path in (Path(name), FOLDER / f"{name}.txt"):
        if path.is_file():
            return path
    raise UsageError(f"There is no file {name}, and no scenario of that name; `quiesce lab run` lists them.")
