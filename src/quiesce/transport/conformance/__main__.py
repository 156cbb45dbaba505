"""`python -m quiesce.transport.conformance [BACKEND ...]`: all known backends when none is named.

A backend that is being written is named `package.module:ATTRIBUTE`.
"""

from __future__ import annotations

import sys

from quiesce.errors import ConfigurationError
from quiesce.transport import registry
from quiesce.transport.conformance.candidates import candidate
from quiesce.transport.conformance.report import Report, Seen, conformance


def show(seen: Seen) -> None:
    mark, name = "ok  " if seen.holds else "FAIL", seen.name.replace("_", " ")
    print(f"  {mark} {name}{': ' if seen.detail else ''}{seen.detail} ({seen.seconds:.1f} s)", flush=True)


def verdict(report: Report) -> str:
    words = ", ".join(sorted(report.derived)) or "nothing"
    missing = f"; claims {', '.join(sorted(report.unproved))} unproved" if report.unproved else ""
    return f"{report.backend}: {'passes' if report.passed else 'FAILS'}; seen: {words}{missing}"


def main(names: list[str]) -> int:
    """0 when every backend passes, 1 when one does not, 2 for a name that is unknown."""
    try:
        backends = [name for name in names or registry.names() if candidate(name)]
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    verdicts = []
    for name in backends:
        print(name)
        report = conformance(name, show)
        print(verdict(report))
        verdicts.append(report.passed)
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
