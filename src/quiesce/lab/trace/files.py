"""Where lines come from: text files, directories of them, and bundles of `quiesce inspect --bundle`."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

from quiesce.errors import UsageError
from quiesce.lab.trace.line import Line, line_of
from quiesce.lab.trace.text import UnreadableError


def lines_of(paths: list[Path]) -> Iterator[Line]:
    """Every step in these files. Raises UsageError when a path cannot be read or has none."""
    for path in paths:
        found = [line for name, text in _texts(path) for line in _lines(name, text)]
        if not found:
            raise UsageError(
                f"{path} has no trace line.",
                remedy="Name a bundle of `quiesce inspect --bundle`, or files from its folder trace/.",
            )
        yield from found


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    try:
        if path.is_dir():
            for each in sorted(path.rglob("*.txt")):
                yield str(each), each.read_text(encoding="utf-8", errors="replace")
        elif tarfile.is_tarfile(path):
            yield from _unpacked(path)
        else:
            yield str(path), path.read_text(encoding="utf-8", errors="replace")
    except (OSError, tarfile.TarError, EOFError) as problem:
        raise UsageError(f"cannot read {path}: {problem}.", remedy="Name a file that exists.") from None


def _unpacked(path: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as archive:
        for member in archive:
            inside = Path(member.name)
            content = archive.extractfile(member) if inside.parent.name == "trace" else None
            if content is not None:
                yield f"{path}:{inside.name}", content.read().decode("utf-8", errors="replace")


def _lines(name: str, text: str) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found = line_of(name, number, line)
        except UnreadableError as problem:
            raise UsageError(
                f"{name}:{number} is a trace line of another version: {problem}.",
                remedy="Check it with the version of quiesce that wrote it.",
            ) from None
        if found is not None:
            yield found
