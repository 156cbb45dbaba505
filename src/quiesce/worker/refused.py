"""What a transport turned away, as metrics."""

from __future__ import annotations

from quiesce.telemetry.metrics import Telemetry
from quiesce.transport.contract import Receiver, Refusing
from quiesce.transport.pulling import Lender
from quiesce.transport.refusals import RefusedTransfer
from quiesce.transport.shm_segments import SegmentReceiver

CONNECTIONS = "quiesce_refused_data_connections"


def export_refusals(transport: Receiver | SegmentReceiver | Lender, telemetry: Telemetry, transfers: str) -> None:
    """Count what came since the last call; `transfers` is the metric of whatever this side's peers ask for.

    Of a transport that does not look there is no series: a 0 would say that nothing was refused.
    """
    if not isinstance(transport, Refusing):
        return
    for why, n in transport.refusals.take().items():
        name = transfers if isinstance(why, RefusedTransfer) else CONNECTIONS
        telemetry.inc(name, n, reason=why.name.lower())
