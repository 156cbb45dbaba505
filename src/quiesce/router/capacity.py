"""How many clients can be connected at once: fewer than this process has file descriptors."""

from __future__ import annotations

import contextlib
import resource

from quiesce.router.settings import RouterSettings

AT_ONCE = 32
"""How many connections one turn of the loop accepts, before they are counted."""

_TURNS = 5  # that a surplus connection takes from being accepted to being closed
_OWN = 64
_PER_WORKER = 2
_AT_LEAST = 16


def make_room(settings: RouterSettings) -> None:
    """Raise this process's limit of open files to what `max_connections` needs, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + _spare(settings)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):  # what it is then, `most_connections` respects
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))


def most_connections(settings: RouterSettings) -> int:
    """`max_connections`, or fewer when the limit of open files leaves room for fewer."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return settings.max_connections
    return min(settings.max_connections, max(_AT_LEAST, soft - _spare(settings)))


def _spare(settings: RouterSettings) -> int:
    return _OWN + _PER_WORKER * len(settings.worker) + _TURNS * AT_ONCE
