"""Style as a test. Limits only ever go down."""

from __future__ import annotations

import ast
import statistics
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROGRAMS = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60
MEDIAN_LINES_OF_A_FUNCTION = 12
EMPTY_NAMES = frozenset({"util", "utils", "manager", "managers", "helper", "helpers", "common", "misc"})


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a file and its number of lines, docstring included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_file_is_long() -> None:
    lines = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path: n for path, n in lines.items() if n > MOST_LINES_OF_A_FILE} == {}


def test_functions_are_short() -> None:
    lengths = {f"{shown(path)}: {name}": lines for path in SOURCES for name, lines in functions(path)}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FUNCTION} == {}
    assert statistics.median(lengths.values()) <= MEDIAN_LINES_OF_A_FUNCTION


def test_names_say_something() -> None:
    """A module or class is called for what it holds, not for being a drawer."""
    modules = [shown(path) for path in PROGRAMS if EMPTY_NAMES & set(path.stem.split("_"))]
    classes = [
        f"{shown(path)}: {node.name}"
        for path in PROGRAMS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.lower().endswith(tuple(EMPTY_NAMES))
    ]
    assert modules + classes == []


def test_the_product_states_invariants_by_name() -> None:
    """`python -O` removes assert statements; `errors.invariant` stays."""
    asserts = [
        f"{shown(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert asserts == []


def test_no_pattern_lets_a_last_newline_in() -> None:
    """`$` alone is also in front of one. `\\Z` would not be, but the OpenAPI document's readers do not know it."""
    patterns = [
        (name, value.value)
        for name in SOURCES
        for node in ast.walk(ast.parse(name.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "pattern" and isinstance(value := node.value, ast.Constant)
    ]
    assert patterns
    assert [found for found in patterns if not str(found[1]).endswith(r"$(?!\n)")] == []


def test_every_module_says_what_it_is() -> None:
    silent = [shown(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert silent == []


def test_every_test_folder_is_a_package() -> None:
    """Else two test files of the same name in two folders collide."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert [shown(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("name", ["torch", "numba", "safetensors", "gguf"])
def test_the_light_installation_has_no_engine(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not [line for line in project["dependencies"] if line.startswith(name)]
    assert [line for line in project["optional-dependencies"]["serve"] if line.startswith(name)]


def test_every_dependency_has_its_exact_version() -> None:
    """constraints.txt pins what pyproject names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in _lines(ROOT / "constraints.txt")}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    assert [line for line in wanted if line.split(">=")[0].lower() not in pinned] == []


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
