"""The console's door: its key, sessions that end, cookies that scripts and other sites cannot use."""

from __future__ import annotations

from http.cookies import SimpleCookie

from starlette.requests import Request
from starlette.responses import Response

from quiesce.router.console.door import COOKIE, MOST_SESSIONS, SESSION_S, Door

KEY = "the-key-of-the-console"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def asking(scheme: str = "http", **headers: str) -> Request:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "scheme": scheme, "path": "/console", "headers": raw, "server": ("h", 80)})


def enter(door: Door, scheme: str = "http") -> tuple[Request, SimpleCookie]:
    """Log in; a request that shows the cookie, and the cookie."""
    door.open_session(asking(scheme), response := Response())
    cookie = SimpleCookie(response.headers["set-cookie"])
    return asking(scheme, cookie=f"{COOKIE}={cookie[COOKIE].value}"), cookie


def test_a_bearer_must_show_the_key() -> None:
    door = Door(KEY)
    assert door.lets_in(asking(authorization=f"Bearer {KEY}"))
    assert door.lets_in(asking(authorization=f"bearer  {KEY}"))
    for wrong in (f"Bearer {KEY}x", "Bearer", f"Basic {KEY}", KEY, ""):
        assert not door.lets_in(asking(authorization=wrong))
    assert not door.lets_in(asking())


def test_the_key_is_no_cookie() -> None:
    assert not Door(KEY).lets_in(asking(cookie=f"{COOKIE}={KEY}"))


def test_a_session_lasts_twelve_hours() -> None:
    door = Door(KEY, clock := Clock())
    request, _ = enter(door)
    assert door.lets_in(request)
    clock.now_s = SESSION_S - 1
    assert door.lets_in(request)
    clock.now_s = SESSION_S
    assert not door.lets_in(request)


def test_who_leaves_is_out() -> None:
    door = Door(KEY)
    request, _ = enter(door)
    other, _ = enter(door)
    door.end_session(request, Response())
    assert not door.lets_in(request)
    assert door.lets_in(other)


def test_a_wrong_bearer_is_not_helped_by_a_cookie() -> None:
    door = Door(KEY)
    request, cookie = enter(door)
    assert door.lets_in(request)
    assert not door.lets_in(asking(authorization="Bearer x", cookie=f"{COOKIE}={cookie[COOKIE].value}"))


def test_the_cookie_is_kept_from_scripts_and_other_sites() -> None:
    _, cookie = enter(Door(KEY))
    assert cookie[COOKIE]["httponly"]
    assert cookie[COOKIE]["samesite"] == "strict"
    assert cookie[COOKIE]["path"] == "/console"
    assert KEY not in str(cookie)
    assert not cookie[COOKIE]["secure"]
    assert enter(Door(KEY), "https")[1][COOKIE]["secure"]


def test_sessions_are_bounded() -> None:
    door = Door(KEY)
    first, _ = enter(door)
    requests = [enter(door)[0] for _ in range(MOST_SESSIONS)]
    assert not door.lets_in(first)
    assert all(door.lets_in(request) for request in requests)
