"""Decode as other systems have it: it believes what bookkeeping says, and looks at no page tag."""

from __future__ import annotations

from typing import Any

from quiesce.integrity.watch import TagWatch
from quiesce.kv.storage import Pool
from quiesce.worker import landing, staged_landing
from quiesce.worker.batch import Batch
from quiesce.worker.sequence import Sequence


def make_blind() -> None:
    """From now on this process commits whatever it is told is there, and no step looks whether it still is."""
    for place, name, blind in (
        (landing, "check_coverage", _nothing_found),
        (staged_landing, "check_stamps", _nothing_found),
        (staged_landing, "check_payload", _nothing_found),
        (TagWatch, "check", _nobody),
        (Batch, "_bears_its_tags", _always),
    ):
        setattr(place, name, blind)


def _nothing_found(*asked: Any, **more: Any) -> None:
    return None


def _nobody(watch: TagWatch[Any], pool: Pool) -> list[Any]:
    return []


def _always(batch: Batch, sequence: Sequence) -> bool:
    return True
