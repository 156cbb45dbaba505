"""What a certificate says its owner may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GRANT_SCHEME = "quiesce:"
"""A URI among a certificate's alternative names: `quiesce:router`, `quiesce:prefill/prefill-0`."""

Grants = Sequence[str]
"""`role` or `role/name` each; none for whoever may be anything."""


def grants_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The grants of a certificate as `getpeercert` gives it."""
    uris = [str(name[1]) for name in (certificate or {}).get("subjectAltName", ()) if name[0] == "URI"]
    return tuple(uri.removeprefix(GRANT_SCHEME) for uri in uris if uri.startswith(GRANT_SCHEME))


def may_be(grants: Grants, role: str, name: str = "") -> bool:
    """Whether they permit to be the `role` of that name."""
    return not grants or role in grants or f"{role}/{name}" in grants


def may_be_some(grants: Grants, role: str) -> bool:
    """Whether they permit to be somebody of that `role`, whatever the name."""
    return not grants or any(grant.partition("/")[0] == role for grant in grants)
