"""`bootstrap_host`, `bootstrap_port` and `bootstrap_room`: how another router says which two halves belong together.

They are read at fronts alone, after the key was checked. The room is where two HTTP requests meet inside of this
process; workers never see it. The host is looked at by nobody, and nothing is dialled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from quiesce.api.asked import Asked
from quiesce.api.reading import invalid, read
from quiesce.errors import InvariantBroken
from quiesce.router.front.leg import Leg

RoomNumber = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Rooms = Annotated[list[RoomNumber], Meta(min_length=1, max_length=1024)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Ports = Annotated[list[Port | None], Meta(min_length=1, max_length=1024)]

_PREFIX = "bootstrap_"


class Bootstrap(msgspec.Struct, frozen=True):
    """One room for each prompt; () when none was named. `port` is the prefill worker's front, None: whichever."""

    rooms: tuple[int, ...] = ()
    port: int | None = None


class FrontAsked(Asked, frozen=True, kw_only=True):
    """What was asked at a front. `leg` is set when the pair is known."""

    bootstrap: Bootstrap
    leg: Leg | None = None


def leg_of(asked: Asked) -> Leg:
    """The leg of what was asked at a front, once its pair is known."""
    leg = asked.leg if isinstance(asked, FrontAsked) else None
    if leg is None:
        raise InvariantBroken("invariant a_front_knows_its_pair is broken")
    return leg


class _Fields(msgspec.Struct, frozen=True):
    bootstrap_room: RoomNumber | Rooms | None = None
    bootstrap_port: Port | Ports | None = None


def read_bootstrap(body: bytes) -> Bootstrap:
    """Raises RequestRejected."""
    fields = read(body, _Fields)
    room, port = fields.bootstrap_room, fields.bootstrap_port
    ports = set(port) if isinstance(port, list) else {port}
    if len(ports) > 1:
        raise invalid("bootstrap_port: all prompts of a request need the same prefill worker.", "bootstrap_port")
    rooms = tuple(room) if isinstance(room, list) else () if room is None else (room,)
    return Bootstrap(rooms, ports.pop())


def with_bootstrap(reader: Callable[[bytes, int], Asked]) -> Callable[[bytes, int], FrontAsked]:
    """`reader`, at a front."""

    def read_both(body: bytes, longest_tokens: int) -> FrontAsked:
        fields = msgspec.structs.asdict(reader(body, longest_tokens))
        fields["stripped"] = tuple(name for name in fields["stripped"] if not name.startswith(_PREFIX))
        return FrontAsked(**fields, bootstrap=read_bootstrap(body))

    return read_both
