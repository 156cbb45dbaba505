"""Who may ask, and as whom."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers

from quiesce.errors import ConfigurationError, RequestRejected
from quiesce.router.settings import RouterSettings
from quiesce.router.tenants import ANYBODY, UNNAMED, KnownKey, Tenant, digest_of
from quiesce.router.tenants_file import read_tenants
from quiesce.telemetry.logs import ids

BLANK_KEY = "--api-key is empty; leave it out to serve without a key"
_SECRET_BYTES = 32

_log = logging.getLogger(__name__)


class ApiKeys:
    """The keys that are accepted, kept as hashes, each a tenant's; without any, and without a file, everybody is.

    Raises ConfigurationError for a blank key (whoever sends no token would bear it) and for a file that is wrong.
    """

    def __init__(self, keys: Iterable[str] = (), tenants: Path | None = None) -> None:
        stripped = [key.strip() for key in keys]
        if not all(stripped):
            raise ConfigurationError([BLANK_KEY])
        self._unnamed = [KnownKey(digest_of(key), UNNAMED) for key in stripped]
        self._file = tenants
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._tenants = {UNNAMED: ANYBODY}
        self._known = self._unnamed
        if tenants is not None:
            self._read(tenants)

    @property
    def tenants(self) -> list[Tenant]:
        return list(self._tenants.values())

    def check(self, headers: Headers) -> Tenant:
        """Whose key this is. Raises RequestRejected (401). All keys are compared, each in constant time."""
        if not self._known and self._file is None:
            return self._tenants[UNNAMED]
        given = bearer(headers)
        digest = digest_of(given)
        names = [known.tenant for known in self._known if hmac.compare_digest(digest, known.digest)]
        if not given or not names:
            raise RequestRejected("The API key is missing or wrong.", code="invalid_api_key", status=401)
        return self._tenants[names[0]]

    def reload(self) -> None:
        """Read the file of tenants again; one that is wrong changes nothing, and what is wrong with it is logged.

        So does one without any key where there were some: an editor that is about to write has emptied it.
        """
        if self._file is None:
            return
        try:
            self._read(self._file)
        except ConfigurationError as error:
            for problem in error.problems:
                _log.error("the file of tenants is not taken: %s", problem)
        else:
            # Somebody asked for it and waits for the answer, which the default level must not hide.
            _log.warning("read the file of tenants again", extra=ids(count=len(self._tenants)))

    def _read(self, file: Path) -> None:
        tenants, warnings = read_tenants(file, self._secret)
        both = {known.digest for known in tenants.keys} & {known.digest for known in self._unnamed}
        if not tenants.keys and len(self._known) > len(self._unnamed):
            raise ConfigurationError([f"--tenants {file}: it has no key any more; to let nobody in, restart with it"])
        if both:
            raise ConfigurationError([f"--tenants {file}: a key of --api-key is a tenant's as well"])
        for warning in warnings:
            _log.warning("%s", warning)
        self._tenants = dict(tenants.by_name)
        self._known = [*self._unnamed, *tenants.keys]


class AdminKey:
    """What operators need to look at metrics and to change the server; without one, looking is free."""

    def __init__(self, settings: RouterSettings, keys: ApiKeys) -> None:
        self._digest = digest_of(settings.admin_key.strip()) if settings.admin_key else None
        self._alone = settings.tenants is None
        self._keys = keys

    def is_shown(self, headers: Headers) -> bool:
        """Whether the request bears the key; False when there is none. Compared in constant time."""
        return self._digest is not None and hmac.compare_digest(digest_of(bearer(headers)), self._digest)

    def may_look(self, headers: Headers) -> bool:
        """Whether metrics and reasons may be told."""
        return self._digest is None or self.is_shown(headers)

    def check_look(self, headers: Headers) -> None:
        """Raises RequestRejected (401) unless metrics may be told."""
        if not self.may_look(headers):
            raise RequestRejected("The admin key is missing or wrong.", code="invalid_admin_key", status=401)

    def check_change(self, headers: Headers) -> None:
        """For what changes the server for all. Raises RequestRejected (401, 403).

        Without an admin key any API key will do where there is one tenant, and none where there are several.
        """
        if self._digest is not None:
            self.check_look(headers)
        elif self._alone:
            self._keys.check(headers)
        else:
            message = "This needs --admin-key, which this server was started without."
            raise RequestRejected(message, code="admin_key_needed", status=403)


def refuse_pages(headers: Headers) -> None:
    """For what changes the server and has no JSON body, without which browsers let any page send it.

    Raises RequestRejected (403) for what a browser says of pages: an origin, or another site than ours.
    """
    if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise RequestRejected("Web pages may not ask for this; use curl.", code="cross_origin", status=403)


def refuse_unsigned(headers: Headers) -> None:
    """For what changes the server and is asked by GET, which any page's image is, and old browsers say nothing of it.

    Raises RequestRejected (403) unless there is what no page can add: a key of any kind, or a browser's word that a
    person typed the address.
    """
    if "authorization" not in headers and "sec-fetch-site" not in headers:
        raise RequestRejected("Without a key this is not done for a GET; use POST.", code="cross_origin", status=403)


def bearer(headers: Headers) -> str:
    """The key of `Authorization: Bearer KEY`, or ""."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
