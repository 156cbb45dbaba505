"""The laboratory's workers: those of the product, with faults composed in.

QUIESCE_LAB names, with commas, what else is broken: `no_admission` (prefill's door lets everything in),
`stub_handoff` (a prompt that does not fit prefill's pool is reported as handed off, as in the incident),
`unguarded_tcp`, `unguarded_mooncake` (decode places whatever comes from whoever knew a lease once),
`hasty` (where decode reads, prefill's pages come back as soon as they are offered),
`blind` (decode looks at no page tag)
and, for `quiesce.lab.serve`, `unsalted` (tenants share prefixes). `gates`, alone: whatever reaches the worker waits
until a story lets it in (`quiesce.lab.gate`).
"""

from __future__ import annotations

from collections.abc import Callable

import click
from msgspec import convert

from quiesce.cli.processes import worker_command
from quiesce.cli.spare import spare_command
from quiesce.errors import UsageError
from quiesce.kv.storage import Pool
from quiesce.lab.blindness import make_blind
from quiesce.lab.broken import broken_parts
from quiesce.lab.fated_sender import FatedSender
from quiesce.lab.fault_socket import FaultSocket
from quiesce.lab.faults import (
    Faults,
    FaultyMooncakeSender,
    FaultyNixlSender,
    FaultyPlacement,
    FaultyTcpPuller,
    FaultyTcpSender,
)
from quiesce.lab.gate_socket import gated
from quiesce.lab.hasty_prefill import HastyPrefill
from quiesce.lab.read_faults import FaultyTcpLender
from quiesce.lab.stub_prefill import StubPrefill
from quiesce.lab.unguarded import UnguardedLeases, UnguardedMooncakeReceiver
from quiesce.protocol.admission import Limits
from quiesce.transport.contract import Receiver, Sender
from quiesce.transport.pulling import Lender, Puller
from quiesce.transport.registry import backend
from quiesce.transport.shm import ShmSender
from quiesce.transport.tcp.receiver import TcpReceiver
from quiesce.worker.compose import PRODUCT, Compose
from quiesce.worker.loading import Loaded
from quiesce.worker.main import run
from quiesce.worker.prefill import PrefillWorker
from quiesce.worker.reach import pages_tls, way_of_pages
from quiesce.worker.settings import Role, WorkerSettings

ANY_LENGTH = 1 << 30
THREADS = 4
"""So that one held write does not stop the others of its worker."""

FAULTY: dict[str, Callable[[Pool, int, float, Faults], Sender]] = {
    "mooncake": FaultyMooncakeSender,
    "nixl": FaultyNixlSender,
}


def faulty_sender(pool: Pool, settings: WorkerSettings) -> Sender:
    """The product's sender, taking orders from a fault socket."""
    faults, way = FaultSocket(settings).faults, way_of_pages(settings)
    ours = _holding(pool, settings, faults)
    inner = ours or way.sender(pool, THREADS, settings.call_deadline_s)
    return FatedSender(inner, lambda copy: way.sender(copy, 1, settings.call_deadline_s), pool, faults, waits=not ours)


def _holding(pool: Pool, settings: WorkerSettings, faults: Faults) -> Sender | None:
    """The sender of a backend of ours, which can be held at every step that it has."""
    name, told = backend(settings.transport).name, (pool, THREADS, settings.call_deadline_s)
    if name == "tcp":
        return FaultyTcpSender(*told, faults, pages_tls(settings))
    if name == "shm":
        return ShmSender(*told, FaultyPlacement(faults))
    of_lanes = FAULTY.get(name)
    return of_lanes(*told, faults) if of_lanes else None


def faulty_lender(pool: Pool, settings: WorkerSettings) -> Lender:
    """The product's lender; over tcp it takes orders from a fault socket."""
    if backend(settings.transport).name != "tcp":
        return PRODUCT.lender(pool, settings)
    faults = FaultSocket(settings).faults
    return FaultyTcpLender(pool, settings.page_host, settings.data_port, faults, pages_tls(settings))


class FaultyPullers:
    """The product's pullers; over tcp they take orders from one fault socket, of however many a life has."""

    def __init__(self) -> None:
        self._socket: FaultSocket | None = None

    def __call__(self, pool: Pool, settings: WorkerSettings) -> Puller:
        if backend(settings.transport).name != "tcp":
            return PRODUCT.puller(pool, settings)
        self._socket = self._socket or FaultSocket(settings)
        told = self._socket.faults, pages_tls(settings)
        return FaultyTcpPuller(pool, THREADS, settings.call_deadline_s, *told)


def unguarded_tcp(pool: Pool, settings: WorkerSettings) -> Receiver:
    return TcpReceiver(pool, settings.page_host, settings.data_port, UnguardedLeases(), pages_tls(settings))


def unguarded_mooncake(pool: Pool, settings: WorkerSettings) -> Receiver:
    return UnguardedMooncakeReceiver(pool, settings.page_host)


UNGUARDED = {"unguarded_tcp": unguarded_tcp, "unguarded_mooncake": unguarded_mooncake}
PREFILLS: dict[str, type[PrefillWorker]] = {"stub_handoff": StubPrefill, "hasty": HastyPrefill}
BREAKABLE = frozenset({"no_admission", "blind", "unsalted", "gates", *UNGUARDED, *PREFILLS})


def _any_length(limits: Limits) -> Limits:
    return Limits(context_length=ANY_LENGTH, pool_tokens=ANY_LENGTH)


def composition(role: str, broken: frozenset[str]) -> Compose:
    """What to run. Raises UsageError for a name in QUIESCE_LAB that nothing knows."""
    if unknown := broken - BREAKABLE:
        raise UsageError(f"QUIESCE_LAB knows nothing of {', '.join(sorted(unknown))}.")
    if "gates" in broken:
        return gated()
    if role == "decode" and "blind" in broken:
        make_blind()
    if role == "decode" and (unguarded := sorted(broken & UNGUARDED.keys())):
        return Compose(receiver=UNGUARDED[unguarded[0]])
    if role == "decode":
        return Compose(puller=FaultyPullers())
    if role != "prefill":
        return PRODUCT
    return Compose(
        sender=faulty_sender,
        lender=faulty_lender,
        door_limits=_any_length if "no_admission" in broken else PRODUCT.door_limits,
        prefill=next((kind for name, kind in PREFILLS.items() if name in broken), PrefillWorker),
    )


def _run(settings: WorkerSettings, loaded: Loaded | None = None) -> int:
    return run(settings, composition(settings.role, broken_parts()), loaded)


def command_of(word: str) -> click.Command:
    """The command of a role, or of a spare. Raises ValidationError for another word."""
    return spare_command(_run) if word == "spare" else worker_command(convert(word, Role), _run)
