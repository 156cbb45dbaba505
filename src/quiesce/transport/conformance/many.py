"""`python -m quiesce.transport.conformance.many PAGES BACKEND ...`: one write of so many small pages to each."""

from __future__ import annotations

import sys

from quiesce.transport.conformance.checks import Broken, many_small_pages


def main(words: list[str]) -> int:
    """0 when every page arrived everywhere, 1 when not, 2 for wrong words."""
    if len(words) < 2 or not words[0].isdecimal():
        print(__doc__, file=sys.stderr)
        return 2
    broken = 0
    for backend in words[1:]:
        try:
            print(f"{backend}: {many_small_pages(backend, int(words[0]))}", flush=True)
        except Broken as error:
            print(f"{backend}: {error}", flush=True)
            broken = 1
    return broken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
