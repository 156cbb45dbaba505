from __future__ import annotations

import pytest

from quiesce.doctor.versions import Release, release_of


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.20", (0, 5, 20)),
        ("v0.5.20-cu129", (0, 5, 20)),
        ("0.5.20.post2", (0, 5, 20)),
        ("0.5.21rc1", (0, 5, 20)),
        ("0.5.21.dev20260909+g12", (0, 5, 20)),
        ("0.6.0rc0", (0, 5, 9999)),
        ("0.16", (0, 16, 0)),
        ("latest", None),
        ("", None),
        ("12345678901234567890.1", None),
    ],
)
def test_releases(version: str, release: Release | None) -> None:
    assert release_of(version) == release
