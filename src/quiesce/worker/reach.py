"""How far a worker reaches: one host or several, what protects the way, and which transport can go it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from quiesce.control.address import Address, TcpAddress, is_loopback, is_wildcard, parse_address, show_address
from quiesce.control.security import INSECURE_WARNING, Security, load_security, require_security, require_spanning
from quiesce.control.srv import check_srv
from quiesce.errors import ConfigurationError
from quiesce.protocol.hello import PULL
from quiesce.transport.registry import Backend, auto_for, backend
from quiesce.trust.contexts import Tls, load_tls
from quiesce.worker.peers import peers_of
from quiesce.worker.settings import WorkerSettings

AUTO_BETWEEN_HOSTS = "tcp"

log = logging.getLogger(__name__)


def security_of(settings: WorkerSettings) -> Security:
    """What protects this worker's TCP connections. Raises ConfigurationError."""
    return load_security(settings.tls_cert, settings.tls_key, settings.tls_ca, insecure=settings.insecure)


def check_security(settings: WorkerSettings) -> None:
    """Raises ConfigurationError for files that cannot be used, and for a TCP address that nothing protects."""
    security = security_of(settings)
    others = [*peers_of(settings).values(), *map(parse_address, settings.register)]
    require_security([parse_address(settings.listen), *others], security)
    if settings.workers_srv:
        require_spanning("--workers-srv", security)
        check_srv(settings.workers_srv, settings.dns_server)


def check_addresses(settings: WorkerSettings, security: Security, addresses: Iterable[Address]) -> None:
    """Whether prefill workers there can be paired with by a worker that began with `settings`. Raises
    ConfigurationError."""
    met = [each for each in addresses if isinstance(each, TcpAddress)]
    require_security(met, security)
    if met and backend(settings.transport).shared_pool:
        raise ConfigurationError([f"--transport {settings.transport} shares memory, which ends at this host"])
    if met and settings.transfer != PULL and (problems := _data_host(settings, met)):
        raise ConfigurationError(problems)


def check_reach(settings: WorkerSettings) -> None:
    """Raises ConfigurationError when pages could not travel where control does."""
    looks = (_dialling, _announcing, _travelling, _encrypting, _connecting)
    problems = [problem for look in looks for problem in look(settings)]
    if problems:
        raise ConfigurationError(problems)


def encrypts_pages(settings: WorkerSettings) -> bool:
    """Whether pages go inside TLS. What cannot be is refused by `check_reach` before."""
    chosen = backend(settings.transport, settings.transfer)
    return settings.data_tls != "off" and bool(settings.tls_cert) and chosen.secured is not None


def pages_tls(settings: WorkerSettings) -> Tls | None:
    """What page data is encrypted with; None: it is not. Raises ConfigurationError for files that cannot be used."""
    if not encrypts_pages(settings) or not (settings.tls_cert and settings.tls_key and settings.tls_ca):
        return None
    return load_tls(settings.tls_cert, settings.tls_key, settings.tls_ca)


def way_of_pages(settings: WorkerSettings) -> Backend:
    """The backend that carries pages, in plain or over TLS. Raises ConfigurationError."""
    chosen, tls = backend(settings.transport, settings.transfer), pages_tls(settings)
    return chosen.secured(tls) if tls and chosen.secured else chosen


def with_transport(settings: WorkerSettings) -> WorkerSettings:
    """The settings with `auto` decided, and why it was decided so in the log."""
    if settings.transport != "auto" or settings.role == "aggregated":
        return settings
    chosen = _decided(settings)
    if _pairs_over_tcp(settings):
        moved = "read" if settings.transfer == PULL else "write"
        why = f"workers pair over TCP, perhaps between hosts, and of what gets there it alone can stop a late {moved}"
    elif settings.transfer == PULL:
        why = "decode reads (--transfer pull), and cannot do so with shm"
    else:
        why = "workers pair over Unix sockets, on one host"
    log.info("--transport auto takes %s: %s", chosen, why)
    return msgspec.structs.replace(settings, transport=chosen)


def warn(settings: WorkerSettings) -> None:
    """Say what is open that somebody might take for closed."""
    if settings.insecure:
        log.warning(INSECURE_WARNING)
    if (
        settings.role == _listens(settings)
        and not backend(settings.transport, settings.transfer).shared_pool
        and not is_loopback(settings.page_host)
        and not encrypts_pages(settings)
    ):
        where = "leave by" if settings.role == "prefill" else "come to"
        told = "pages %s --data-host %s in plain: keep it in a network that is trusted"
        log.warning(told, where, settings.page_host)


def _listens(settings: WorkerSettings) -> str:
    """Whose port the pages travel through: whoever moves them dials."""
    return "prefill" if settings.transfer == PULL else "decode"


def _decided(settings: WorkerSettings) -> str:
    """The transport, with `auto` decided."""
    if settings.transport != "auto":
        return settings.transport
    return AUTO_BETWEEN_HOSTS if _pairs_over_tcp(settings) else auto_for(settings.transfer)


def _encrypting(settings: WorkerSettings) -> list[str]:
    """Why --data-tls on cannot be."""
    if settings.data_tls != "on":
        return []
    told = "--data-tls on needs"
    name, files = _decided(settings), (settings.tls_cert, settings.tls_key, settings.tls_ca)
    no_way = f"{told} --transport tcp: pages of {name} cannot be encrypted"
    return [
        *([] if backend(name).secured else [no_way]),
        *([] if all(files) else [f"{told} --tls-cert, --tls-key and --tls-ca"]),
    ]


def _connecting(settings: WorkerSettings) -> list[str]:
    """Why --data-connections cannot be."""
    name = _decided(settings)
    if settings.data_connections == 1 or settings.role == "aggregated" or backend(name).connects:
        return []
    return [f"--data-connections {settings.data_connections} needs --transport tcp: {name} has one way to each peer"]


def _pairs_over_tcp(settings: WorkerSettings) -> bool:
    return bool(_pairing_over_tcp(settings) or _learns_over_tcp(settings))


def _pairing_over_tcp(settings: WorkerSettings) -> list[TcpAddress]:
    """Where prefill and decode workers meet over TCP: decode dials prefill."""
    met: list[Address] = [*peers_of(settings).values()]
    if settings.role == "prefill":
        met.append(parse_address(settings.listen))
    return [address for address in met if isinstance(address, TcpAddress)]


def _learns_over_tcp(settings: WorkerSettings) -> bool:
    """Whether decode will hear of prefill workers that are perhaps on other hosts."""
    routers = [parse_address(each) for each in settings.register]
    remote = any(isinstance(each, TcpAddress) for each in routers)
    return settings.role == "decode" and (bool(settings.workers_srv) or remote)


def _announcing(settings: WorkerSettings) -> list[str]:
    """What is announced must be an address that can be dialled from where it is announced."""
    address = parse_address(settings.advertise or settings.listen)
    if idle := _saying_nothing(settings):
        return idle
    if not any(isinstance(parse_address(each), TcpAddress) for each in settings.register):
        return []
    if not isinstance(address, TcpAddress):
        return [f"--register over TCP, and {show_address(address)} ends at this host: --listen on tcp://HOST:PORT"]
    if is_wildcard(address.host) or (settings.advertise and address.port == 0):
        return [f"{show_address(address)}: nobody can dial that; say with --advertise where this worker is reached"]
    return []


def _saying_nothing(settings: WorkerSettings) -> list[str]:
    """What was said of something that was not asked for."""
    idle = []
    if settings.advertise and not settings.register:
        idle.append("--advertise means nothing without --register")
    if settings.dns_server and not settings.workers_srv:
        idle.append("--dns-server means nothing without --workers-srv")
    return idle


def _dialling(settings: WorkerSettings) -> list[str]:
    return [
        f"--peer {name}: port 0 is for listening; nobody can be dialled there"
        for name, address in peers_of(settings).items()
        if isinstance(address, TcpAddress) and address.port == 0
    ]


def _travelling(settings: WorkerSettings) -> list[str]:
    met = _pairing_over_tcp(settings)
    if not (met or _learns_over_tcp(settings)):
        return []
    chosen = backend(settings.transport)
    if chosen.shared_pool and settings.transport != "auto":
        memory = f"--transport {chosen.name} shares memory, which ends at this host, and workers pair over TCP: "
        return [f"{memory}use --transport {AUTO_BETWEEN_HOSTS}, or unix: addresses"]
    return _data_host(settings, met) if settings.role == _listens(settings) else []


def _data_host(settings: WorkerSettings, met: list[TcpAddress]) -> list[str]:
    told = f"--data-host {settings.page_host}"
    far = [address.host for address in met if not address.is_loopback]
    remedy = f"give the address of this host that {'decode' if settings.role == 'prefill' else 'prefill'} workers reach"
    if is_wildcard(settings.page_host):
        return [f"{told}: nobody can dial that; {remedy}"]
    if far and is_loopback(settings.page_host):
        whence = "other hosts" if settings.role == "prefill" else far[0]
        return [f"{told} cannot be reached from {whence}: {remedy}"]
    return []
