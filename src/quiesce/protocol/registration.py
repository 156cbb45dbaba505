"""What a worker and a router say to each other when the worker announces itself.

The worker dials and says `Register`; the router answers `Registered`, or `Refused` and hangs up. The connection stays:
a worker that says `Leave` is gone for good, one whose connection is lost may be back. The router dials whom it knows;
a decode worker hears which prefill workers there are that fit it, again whenever that changes.
"""

from __future__ import annotations

import msgspec

from quiesce.ids import Incarnation


class Register(msgspec.Struct, frozen=True, tag="register"):
    """worker -> router, first. `version` is its DISPATCH_VERSION; `address` is where it is dialled.

    `hello` is the payload of its HELLO, "" where it pairs with nobody: the router tells in advance who will not fit.
    """

    version: int
    role: str
    worker: str
    incarnation: Incarnation
    address: str
    model: str
    hello: bytes = b""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """worker -> router: give me nothing new; what I have I finish."""


class Registered(msgspec.Struct, frozen=True, tag="registered"):
    """router -> worker: the registration is taken. `prefills`, for decode workers: (name, address), all there are but
    those that do not fit. `unfit` are those of the other role that do not: (name, why not, in words).
    """

    prefills: tuple[tuple[str, str], ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """router -> worker, last: why not."""

    reason: str


RegistrarFrame = Registered | Refused
