"""Transports by name: ours, and those that an installed package offers under the entry point `quiesce.transports`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec

import msgspec

from quiesce.errors import ConfigurationError
from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.protocol.hello import OVER_TLS, PULL, Capabilities
from quiesce.transport import mori
from quiesce.transport.contract import Receiver, Sender
from quiesce.transport.mooncake import library as mooncake
from quiesce.transport.mooncake.receiver import MooncakeReceiver
from quiesce.transport.mooncake.sender import MooncakeSender
from quiesce.transport.nixl import library as nixl
from quiesce.transport.nixl.lender import NixlLender
from quiesce.transport.nixl.puller import NixlPuller
from quiesce.transport.nixl.receiver import NixlReceiver
from quiesce.transport.nixl.sender import NixlSender
from quiesce.transport.pulling import Lender, Puller
from quiesce.transport.shm import SHM_CAPABILITIES, ShmReceiver, ShmSender
from quiesce.transport.shm_segments import SegmentReceiver
from quiesce.transport.tcp.lender import TcpLender
from quiesce.transport.tcp.puller import TcpPuller
from quiesce.transport.tcp.receiver import TCP_CAPABILITIES, TcpReceiver
from quiesce.transport.tcp.sender import TcpSender
from quiesce.trust.contexts import Tls

ENTRY_POINTS = "quiesce.transports"
AUTO = "shm"
"""What `auto` takes: both workers are on one host as long as control is a Unix socket."""
AUTO_PULL = "tcp"
"""What `auto` takes where decode reads, for it cannot read with shm."""


MakePuller = Callable[[Pool, int, float], Puller]
MakeLender = Callable[[Pool, str, int], Lender]


class Backend(msgspec.Struct, frozen=True):
    """One way to move pages. `sender(pool, threads, call_deadline_s)`, `receiver(pool, data_host, data_port)`.

    `puller(pool, threads, call_deadline_s)` and `lender(pool, data_host, data_port)` where decode can also read from
    prefill (capability `pull`); None, both, where it cannot. A pool to read from, or into, is a private one.
    `shared_pool` says that decode's pool must be made by `Pool.shared`. `fence` says in words what proves *fenced*,
    `reach` how far pages can travel. `library` is the distribution that it drives, `verified` the version of it that
    passed the conformance suite; both "" for what is all ours (a package names itself, or must be trusted).
    `unverified()` says what of the configuration never did, `missing()` why it cannot run here; both "" when all is
    well. `secured(tls)` is the same backend with its pages
    inside mutual TLS, under the name `secured_name`; None where pages cannot be encrypted. `segmented(layout, pages)`
    is a receiver that lends each staged lease memory of its own; None where all leases land in one pool. `close_fence`
    says that after its receiver's `close` no byte of the pool changes, with writes under way and senders that live on,
    `lease_bound` that what is not armed is never written, `connects` that each of `threads` has a connection of its own
    to each peer, so that there may be several (`--data-connections`); else `threads` is always 1.
    """

    name: str
    capabilities: Capabilities
    sender: Callable[[Pool, int, float], Sender]
    receiver: Callable[[Pool, str, int], Receiver]
    shared_pool: bool
    fence: str
    reach: str
    library: str = ""
    verified: str = ""
    unverified: Callable[[], str] = str
    missing: Callable[[], str] = str
    puller: MakePuller | None = None
    lender: MakeLender | None = None
    secured: Callable[[Tls], Backend] | None = None
    segmented: Callable[[Layout, int], SegmentReceiver] | None = None
    close_fence: bool = False
    lease_bound: bool = False
    connects: bool = False


def secured_name(name: str) -> str:
    """What a backend is called whose pages are inside TLS: another transport, to whoever compares names."""
    return f"{name}{OVER_TLS}"


def _tcp_over(tls: Tls) -> Backend:
    push = {"sender": partial(TcpSender, tls=tls), "receiver": partial(TcpReceiver, tls=tls)}
    pull = {"puller": partial(TcpPuller, tls=tls), "lender": partial(TcpLender, tls=tls)}
    return msgspec.structs.replace(_OURS["tcp"], name=secured_name("tcp"), secured=None, **push, **pull)


def _absent(module: str, remedy: str) -> Callable[[], str]:
    """Says that a module is not installed, without loading it."""
    return lambda: "" if find_spec(module) else f"{module} is not installed; {remedy}"


_OURS = {
    backend.name: backend
    for backend in (
        Backend(
            *("shm", SHM_CAPABILITIES, ShmSender, lambda pool, _host, _port: ShmReceiver(pool)),
            shared_pool=True,
            fence="the writer's process is dead",
            reach="same host",
            segmented=SegmentReceiver,
        ),
        Backend(
            *("tcp", TCP_CAPABILITIES, TcpSender, TcpReceiver),
            shared_pool=False,
            fence="decode no longer places what bears the attempt's tag",
            reach="any host",
            puller=TcpPuller,
            lender=TcpLender,
            secured=_tcp_over,
            close_fence=True,
            lease_bound=True,
            connects=True,
        ),
        Backend(
            *("mooncake", mooncake.MOONCAKE_CAPABILITIES, MooncakeSender, MooncakeReceiver),
            shared_pool=False,
            fence="never: what is being placed cannot be stopped",
            reach="any host",
            library="mooncake-transfer-engine-non-cuda",
            verified=mooncake.VERIFIED,
            missing=_absent("mooncake", mooncake.REMEDY),
            close_fence=True,
            lease_bound=True,
        ),
        Backend(
            *("nixl", nixl.NIXL_CAPABILITIES, NixlSender, NixlReceiver),
            shared_pool=False,
            fence="never: what comes is placed",
            reach="any host",
            library="nixl-cu12",
            verified=nixl.VERIFIED,
            unverified=nixl.unverified,
            puller=NixlPuller,
            lender=NixlLender,
            missing=_absent("nixl_cu12", nixl.REMEDY),
            close_fence=True,
        ),
        Backend(
            *("mori", mori.MORI_CAPABILITIES, mori.refuse, mori.refuse),
            shared_pool=False,
            fence="never: nothing was seen",
            reach="nowhere yet",
            missing=mori.missing,
        ),
    )
}


def names() -> tuple[str, ...]:
    return (*_OURS, *sorted(_offered().keys() - _OURS.keys()))


def backend(name: str, transfer: str = "push") -> Backend:
    """The backend of that name; `auto` is ours to choose. Raises ConfigurationError when there is none."""
    name = auto_for(transfer) if name == "auto" else name
    if name in _OURS:
        return _OURS[name]
    if name not in _offered():
        raise ConfigurationError([f"there is no transport {name!r}; there are auto, {', '.join(names())}"])
    return _load(_offered()[name])


def auto_for(transfer: str) -> str:
    """What `auto` takes on one host."""
    return AUTO_PULL if transfer == PULL else AUTO


def require_transfer(chosen: Backend, transfer: str) -> None:
    """Raises ConfigurationError when pages cannot travel that way."""
    if transfer == PULL:
        pulling(chosen)


def pulling(chosen: Backend) -> tuple[MakeLender, MakePuller]:
    """What lends and what reads, where decode reads. Raises ConfigurationError when it cannot."""
    if chosen.lender is None or chosen.puller is None:
        able = ", ".join(each.name for each in _OURS.values() if each.lender is not None)
        raise ConfigurationError(
            [f"transport {chosen.name} cannot --transfer pull: decode cannot read with it; of ours these can: {able}"]
        )
    return chosen.lender, chosen.puller


def require_trusted(chosen: Backend, *, network: bool, library: bool) -> None:
    """What an operator has to say explicitly. Raises ConfigurationError with every problem, before anything starts.

    `network`: everybody who reaches the data ports is trusted. `library`: the installed version is, unverified.
    """
    if why := chosen.missing():
        raise ConfigurationError([f"transport {chosen.name} cannot run here: {why}"])
    problems = []
    if not chosen.capabilities.authenticated and not network:
        problems.append(
            f"transport {chosen.name} asks nobody who they are: whoever reaches its ports can write into KV pages; "
            "say --trust-network if nobody else does"
        )
    installed = installed_version(chosen.library)
    if chosen.library and installed != chosen.verified and not library:
        problems.append(
            f"transport {chosen.name} was verified with {chosen.library} {chosen.verified}, not with "
            f"{installed or 'what is here, which another distribution brought'}; "
            "install that, or run quiesce.transport.conformance and say --trust-transport"
        )
    if _is_strange(chosen) and not chosen.library and not library:
        problems.append(
            f"transport {chosen.name} names no library in a version that was verified; "
            "run quiesce.transport.conformance and say --trust-transport"
        )
    if (deviation := chosen.unverified()) and not library:
        problems.append(f"transport {chosen.name} was never verified with {deviation}; say --trust-transport")
    if problems:
        raise ConfigurationError(problems)


def _is_strange(chosen: Backend) -> bool:
    """Whether a package offered it: our record says nothing of it, so it has to name what its author verified."""
    return chosen.name not in _OURS and chosen.name in _offered()


def installed_version(library: str) -> str:
    """The version of a distribution; "" when it is not here, though another one may have brought its modules."""
    try:
        return version(library) if library else ""
    except PackageNotFoundError:
        return ""


def _offered() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=ENTRY_POINTS)}


@cache
def _load(offered: EntryPoint) -> Backend:
    where = f"transport {offered.name!r} ({offered.value})"
    try:
        found = offered.load()
    except Exception as error:  # somebody else's package, whatever it raises
        raise ConfigurationError([f"{where} cannot be imported: {type(error).__name__}: {error}"]) from error
    if not isinstance(found, Backend) or found.name != offered.name:
        raise ConfigurationError([f"{where} is no quiesce.transport.registry.Backend of that name"])
    if {found.capabilities.pull, found.puller is not None, found.lender is not None} not in ({True}, {False}):
        raise ConfigurationError([f"{where} does not offer all of pull: the capability, a puller and a lender"])
    return found
