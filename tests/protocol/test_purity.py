"""The machines stay pure: whatever could make two runs differ, or wait, is not even imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import quiesce.protocol

ROOM = Path(quiesce.protocol.__file__).parent
FORBIDDEN = {
    *("asyncio", "datetime", "logging", "multiprocessing", "numpy", "os", "random", "secrets", "select", "signal"),
    *("socket", "subprocess", "threading", "time", "torch", "uuid"),
}
ALLOWED_ROOMS = {"errors", "ids", "protocol", "units"}


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.stem)
def test_module_is_pure(path: Path) -> None:
    names = imported(path)
    assert not {name.split(".")[0] for name in names} & FORBIDDEN
    rooms = {name.split(".")[1] for name in names if name.startswith("quiesce.")}
    assert rooms <= ALLOWED_ROOMS
