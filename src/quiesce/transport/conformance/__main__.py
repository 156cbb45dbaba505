"""`python -m quiesce.transport.conformance [--record FILE] [BACKEND ...]`: all that can run here when none is named.

A backend that is being written is named `package.module:ATTRIBUTE`. FILE takes what was seen, for docs/conformance.md.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

from quiesce.errors import ConfigurationError
from quiesce.transport import registry
from quiesce.transport.conformance.candidates import candidate
from quiesce.transport.conformance.record import encode, record_of
from quiesce.transport.conformance.report import Report, Seen, conformance, promised, title


def show(seen: Seen, needed: Collection[str]) -> None:
    """FAIL is what counts: the others only say that a capability, which nobody claims, is not offered."""
    mark = "ok" if seen.holds else "FAIL" if seen.name in needed else "not offered"
    said = f"{title(seen.name)}{': ' if seen.detail else ''}{seen.detail}"
    print(f"  {mark:<11} {said} ({seen.seconds:.1f} s)", flush=True)


def verdict(report: Report) -> str:
    words = ", ".join(sorted(report.derived)) or "nothing"
    missing = f"; claims {', '.join(sorted(report.unproved))} unproved" if report.unproved else ""
    return f"{report.backend}: {'passes' if report.passed else 'FAILS'}; seen: {words}{missing}"


def main(words: list[str]) -> int:
    """0 when every backend passes, 1 when one does not, 2 for a name that is unknown."""
    into, names = (Path(words[1]), words[2:]) if len(words) > 1 and words[0] == "--record" else (None, words)
    try:
        backends = [name for name in names or registry.names() if not candidate(name).missing() or names]
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    reports = []
    for name in backends:
        print(name)
        needed = {check.__name__ for check in promised(name)}
        reports.append(conformance(name, partial(show, needed=needed)))
        print(verdict(reports[-1]))
    if into:
        into.write_bytes(encode(record_of(reports)))
    return 0 if all(report.passed for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
