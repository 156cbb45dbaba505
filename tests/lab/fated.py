"""Backends whose first write meets a fate, for processes of the conformance suite, by name: `tests.lab.fated:shm_drop`.

`example` is the backend of the docs, which knows nothing of faults.
"""

from __future__ import annotations

from msgspec.structs import replace

from quiesce.kv.storage import Pool
from quiesce.lab.fated_sender import FatedSender
from quiesce.lab.faults import Doom, Fate, Faults
from quiesce.transport.conformance.candidates import candidate
from quiesce.transport.registry import Backend


def __getattr__(name: str) -> Backend:
    over, _, fate = name.partition("_")
    if fate not in set(Fate):
        raise AttributeError(name)
    inner = candidate("docs.example_backend:BACKEND" if over == "example" else over)

    def doomed(pool: Pool, threads: int, call_deadline_s: float) -> FatedSender:
        faults = Faults(lambda _: None)
        faults.order(Doom(Fate(fate)))
        made = inner.sender(pool, threads, call_deadline_s)
        return FatedSender(made, lambda copy: inner.sender(copy, 1, call_deadline_s), pool, faults)

    return replace(inner, name=name, sender=doomed)
