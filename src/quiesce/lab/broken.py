"""What QUIESCE_LAB says is broken in the processes of the laboratory."""

from __future__ import annotations

import os


def broken_parts() -> frozenset[str]:
    """Its names, between commas; `quiesce.lab.composition` lists them."""
    return frozenset(word for word in os.environ.get("QUIESCE_LAB", "").split(",") if word)
