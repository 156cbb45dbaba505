"""Versions of engines, as far as they are numbers."""

from __future__ import annotations

import re

Release = tuple[int, int, int]

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?((?:\.?(?:dev|a|b|rc)|-?nightly).{0,40})?")


def release_of(version: str) -> Release | None:
    """`0.5.20.post1` and `v0.5.20-cu129` are release 0.5.20. What comes before a release is counted as the one before
    it (`0.5.21rc1`, `0.5.21.dev3` as 0.5.20), because it may lack what the release has. None for anything else.
    """
    match = _VERSION.match(version.strip())
    if not match:
        return None
    major, minor, patch = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[4]:
        return (major, minor, patch - 1) if patch else (major, minor - 1, 9999)
    return major, minor, patch


def shown(release: Release) -> str:
    """`0.5.20`."""
    return ".".join(str(part) for part in release)
