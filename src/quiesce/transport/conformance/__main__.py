"""`python -m quiesce.transport.conformance [--record FILE] [BACKEND ...]`: all that can run here when none is named.

A backend that is being written is named `package.module:ATTRIBUTE`, one over TLS `tcp+tls=DIR`, with the certificates
that `quiesce certs DIR` makes, one that lends each lease memory of its own `shm+segments`. FILE takes what was seen,
for docs/conformance.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from quiesce.errors import ConfigurationError
from quiesce.transport import registry
from quiesce.transport.conformance.candidates import candidate, segments_of, trial_of
from quiesce.transport.conformance.pull_stage import NOT_OFFERED
from quiesce.transport.conformance.record import encode, record_of
from quiesce.transport.conformance.report import Report, Seen, conformance, promised, title


def show(seen: Seen, needed: Collection[str]) -> None:
    """FAIL is what counts: the others only say what is not so and that nobody claims it, or that it is not offered."""
    unclaimed = "not offered" if seen.detail == NOT_OFFERED else "not claimed"
    mark = "ok" if seen.holds else "FAIL" if seen.name in needed else unclaimed
    said = f"{title(seen.name)}{': ' if seen.detail else ''}{seen.detail}"
    print(f"  {mark:<11} {said} ({seen.seconds:.1f} s)", flush=True)


def verdict(report: Report) -> str:
    words = ", ".join(sorted(report.derived)) or "nothing"
    missing = f"; claims {', '.join(sorted(report.unproved))} unproved" if report.unproved else ""
    return f"{'passes' if report.passed else 'FAILS'}; seen: {words}{missing}"


def main(words: list[str]) -> int:
    """0 when every backend passes, 1 when one does not, 2 for a name that is unknown."""
    if {"-h", "--help"} & {*words}:
        print(__doc__)
        return 0
    into, names = (Path(words[1]), words[2:]) if len(words) > 1 and words[0] == "--record" else (None, words)
    with tempfile.TemporaryDirectory(prefix="quiesce-") as directory:
        try:
            backends = names or list(_all(Path(directory)))
            reports = [_reported(name, candidate(name).name) for name in backends]
        except ConfigurationError as error:
            print(error, file=sys.stderr)
            return 2
        if into:
            into.write_bytes(encode(record_of(reports)))
    return 0 if all(report.passed for report in reports) else 1


def _all(directory: Path) -> Iterator[str]:
    """What can run here, and over TLS what can be encrypted. Certificates for it are made in `directory`."""
    for name in registry.names():
        backend = registry.backend(name)
        if not backend.missing():
            yield name
        if not backend.missing() and backend.segmented:
            yield segments_of(name)
        if not backend.missing() and backend.secured:
            try:
                yield trial_of(name, directory / name)
            except ModuleNotFoundError:
                print(f"{name} is not tried over TLS: that needs the extra hosts", file=sys.stderr)


def _reported(name: str, shown: str) -> Report:
    print(shown)
    needed = {check.__name__ for check in promised(name)}
    report = conformance(name, partial(show, needed=needed))
    print(f"{shown}: {verdict(report)}")
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
