"""Who may look at the console: whoever shows its key, as a bearer or once in a form."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

COOKIE = "quiesce_console"
SESSION_S = 12 * 3600
MOST_SESSIONS = 256


class Door:
    """The cookie holds a session's random name, never the key; sessions end after twelve hours or with the router."""

    def __init__(self, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = _hash(key)
        self._clock = clock
        self._sessions: dict[bytes, float] = {}

    def is_key(self, given: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(_hash(given), self._key)

    def lets_in(self, request: Request) -> bool:
        """By `Authorization: Bearer KEY` or the cookie of a session."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_key(key.strip())
        return self._sessions.get(_hash(request.cookies.get(COOKIE, "")), 0.0) > self._clock()

    def open_session(self, request: Request, response: Response) -> None:
        """Let this browser in from now on: not scripts, not other sites, and over TLS only where there is TLS."""
        self._forget_old()
        name = secrets.token_urlsafe(32)
        self._sessions[_hash(name)] = self._clock() + SESSION_S
        response.set_cookie(
            COOKIE,
            name,
            max_age=SESSION_S,
            path="/console",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def end_session(self, request: Request, response: Response) -> None:
        self._sessions.pop(_hash(request.cookies.get(COOKIE, "")), None)
        response.delete_cookie(COOKIE, path="/console", httponly=True, samesite="strict")

    def _forget_old(self) -> None:
        now_s = self._clock()
        self._sessions = {name: end_s for name, end_s in self._sessions.items() if end_s > now_s}
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
