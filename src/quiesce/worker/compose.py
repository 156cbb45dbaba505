"""How a worker is put together. The laboratory replaces single parts here; the product has no fault flags."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from quiesce.kv.storage import Pool
from quiesce.protocol.admission import Limits
from quiesce.transport.contract import Receiver, Sender
from quiesce.worker.decode import DecodeWorker
from quiesce.worker.prefill import PrefillWorker
from quiesce.worker.process import Parts
from quiesce.worker.reach import way_of_pages
from quiesce.worker.settings import WorkerSettings


def _sender(pool: Pool, settings: WorkerSettings) -> Sender:
    return way_of_pages(settings).sender(pool, 1, settings.call_deadline_s)


def _receiver(pool: Pool, settings: WorkerSettings) -> Receiver:
    return way_of_pages(settings).receiver(pool, settings.data_host, settings.data_port)


def _admit_as_sized(limits: Limits) -> Limits:
    return limits


class Compose(msgspec.Struct, frozen=True):
    """The parts that differ between product and laboratory."""

    sender: Callable[[Pool, WorkerSettings], Sender] = _sender
    receiver: Callable[[Pool, WorkerSettings], Receiver] = _receiver
    door_limits: Callable[[Limits], Limits] = _admit_as_sized
    prefill: Callable[[Parts, Sender], PrefillWorker] = PrefillWorker
    decode: Callable[[Parts, Receiver], DecodeWorker] = DecodeWorker


PRODUCT = Compose()
