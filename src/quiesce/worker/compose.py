"""How a worker is put together. The laboratory replaces single parts here; the product has no fault flags."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from quiesce.kv.layout import Layout
from quiesce.kv.storage import Pool
from quiesce.protocol.admission import Limits
from quiesce.protocol.hello import PULL
from quiesce.transport.contract import Receiver, Sender
from quiesce.transport.pulling import Lender, Puller
from quiesce.transport.registry import pulling
from quiesce.worker.decode import DecodeWorker
from quiesce.worker.intake import MakeIntake
from quiesce.worker.landing_memory import LandingSpace
from quiesce.worker.landing_space import landing_space
from quiesce.worker.outlet import MakeOutlet
from quiesce.worker.parts import Parts
from quiesce.worker.prefill import PrefillWorker
from quiesce.worker.pull_intake import PullIntake
from quiesce.worker.pull_outlet import PullOutlet
from quiesce.worker.push_intake import PushIntake
from quiesce.worker.push_outlet import PushOutlet
from quiesce.worker.reach import way_of_pages
from quiesce.worker.settings import WorkerSettings


def _sender(pool: Pool, settings: WorkerSettings) -> Sender:
    return way_of_pages(settings).sender(pool, settings.data_connections, settings.call_deadline_s)


def _receiver(pool: Pool, settings: WorkerSettings) -> Receiver:
    return way_of_pages(settings).receiver(pool, settings.page_host, settings.data_port)


def _lender(pool: Pool, settings: WorkerSettings) -> Lender:
    lender, _ = pulling(way_of_pages(settings))
    return lender(pool, settings.page_host, settings.data_port)


def _puller(pool: Pool, settings: WorkerSettings) -> Puller:
    _, puller = pulling(way_of_pages(settings))
    return puller(pool, settings.data_connections, settings.call_deadline_s)


def _admit_as_sized(limits: Limits) -> Limits:
    return limits


class Compose(msgspec.Struct, frozen=True):
    """The parts that differ between product and laboratory."""

    sender: Callable[[Pool, WorkerSettings], Sender] = _sender
    receiver: Callable[[Pool, WorkerSettings], Receiver] = _receiver
    landing: Callable[[WorkerSettings, Layout, int], LandingSpace] = landing_space
    lender: Callable[[Pool, WorkerSettings], Lender] = _lender
    puller: Callable[[Pool, WorkerSettings], Puller] = _puller
    door_limits: Callable[[Limits], Limits] = _admit_as_sized
    prefill: Callable[[Parts, MakeOutlet], PrefillWorker] = PrefillWorker
    decode: Callable[[Parts, MakeIntake], DecodeWorker] = DecodeWorker

    def intake(self, parts: Parts) -> MakeIntake:
        """How a prompt's pages come to a decode worker."""
        if parts.settings.transfer == PULL:
            return lambda host, landing, record: PullIntake(host, landing, parts, self.puller, record)
        written = parts.pool if parts.landing is None else parts.landing.where
        receiver = self.receiver(written, parts.settings) if isinstance(written, Pool) else written
        return lambda host, landing, record: PushIntake(host, landing, parts, receiver, record)

    def outlet(self, parts: Parts) -> MakeOutlet:
        """How a prefill worker's pages leave it."""
        if parts.settings.transfer == PULL:
            lender = self.lender(parts.pool, parts.settings)
            return lambda host, record: PullOutlet(host, parts, lender, record)
        sender = self.sender(parts.pool, parts.settings)
        return lambda host, record: PushOutlet(host, parts, sender, record)


PRODUCT = Compose()
