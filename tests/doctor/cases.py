"""The library of configurations: each file of `cases/` has its expected findings beside it, in a file of lines.

# what it is
inputs: decode=incident.log incident.sh     (default: the file itself)
args: --disaggregation-mode decode          (a command line)
tell: tenants=one
leak context-exceeds-pool incident.log:2    (severity, rule, first place)
not told: the version of SGLang decode (incident.log)
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from quiesce.doctor.examination import Inputs, examine
from quiesce.doctor.findings import Diagnosis

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name.removesuffix(".expected") for path in CASES.glob("*.expected"))


class Case(msgspec.Struct, frozen=True):
    """`expected` are lines as `seen` makes them."""

    inputs: Inputs
    expected: list[str]


def read(name: str) -> Case:
    lines = (CASES / f"{name}.expected").read_text(encoding="utf-8").splitlines()
    said: dict[str, list[str]] = {"inputs": [], "args": [], "tell": []}
    expected = []
    for line in lines:
        key, _colon, value = line.partition(": ")
        if key in said:
            said[key] += [value] if key == "args" else value.split()
        elif line and not line.startswith("#"):
            expected.append(line)
    names = said["inputs"] or ([] if said["args"] else [name])
    return Case(Inputs(names, said["args"], said["tell"]), expected)


def seen(diagnosis: Diagnosis) -> list[str]:
    """Findings and what was not told, a line each."""
    found = [f"{finding.severity} {finding.rule} {finding.where[0].place}" for finding in diagnosis.findings]
    return [*found, *(f"{untold.word}: {untold.what}" for untold in diagnosis.untold)]


def examined(name: str) -> list[str]:
    return seen(examine(read(name).inputs))
