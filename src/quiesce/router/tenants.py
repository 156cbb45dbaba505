"""Tenants: who shares this server, what each may have, and the salt that keeps their prefix caches apart."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

import msgspec

UNNAMED = "default"
"""The tenant of `--api-key`, and of everybody where no key is needed. A file may limit it under this name."""

MAX_PRIORITY = 1_000_000
"""Of a request's `priority`, either way."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """None is no limit. `salt` is part of the request digest and of the prefix cache's keys; no client ever sees it.

    `priority` is what requests have that name none, `earliest_priority` the most urgent they may have: as in the API,
    the lower number is served earlier.
    """

    name: str
    salt: str = ""
    weight: int = 1
    max_concurrent: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_prompt_tokens: int | None = None
    max_tokens: int | None = None
    priority: int = 0
    earliest_priority: int = 0

    def served_priority(self, asked: int | None) -> int:
        """What workers are told, where the higher number is served earlier."""
        return -max(self.priority if asked is None else asked, self.earliest_priority)


ANYBODY = Tenant(name=UNNAMED, earliest_priority=-MAX_PRIORITY)
"""Where no tenants are configured: no limits, and one salt for all."""


class KnownKey(msgspec.Struct, frozen=True):
    """A key is 256 random bits, so its SHA-256 gives nothing away and needs neither salt nor many rounds."""

    digest: bytes
    tenant: str


class Tenants(msgspec.Struct, frozen=True):
    """What a file of tenants says."""

    by_name: Mapping[str, Tenant]
    keys: Sequence[KnownKey]


def digest_of(key: str) -> bytes:
    """The SHA-256 of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def salt_of(secret: bytes, name: str) -> str:
    """HMAC-SHA256 of the tenant's name, 64 hex digits: routers that share the secret share the cache."""
    return hmac.new(secret, name.encode(), hashlib.sha256).hexdigest()


def salt_within(salt: str, part: str) -> str:
    """The salt of a part of a tenant's cache that a client named, "" for all of it: HMAC-SHA256.

    It is no other tenant's, whatever the client says, so a client can only share less.
    """
    if not part:
        return salt
    return hmac.new(salt.encode(), part.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
