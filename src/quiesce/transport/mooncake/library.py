"""The library, made only when it is needed, and what a receiver says of itself."""

from __future__ import annotations

import os
from typing import Any

from quiesce.errors import MachineLacksError, install
from quiesce.protocol.hello import Capabilities
from quiesce.transport.onesided import PoolAddresses

VERIFIED = "0.3.13.post1"
"""The version that the conformance suite was run against."""
REMEDY = f"{install('mooncake')} in the source's directory, and Debian's package libibverbs1."
# No fence: unregistering a window does not stop what is being placed into it (measured; docs/backends.md).
MOONCAKE_CAPABILITIES = Capabilities(drain_ack=True, source_fence=True, bounds_checked=True)
MOST_ENTRIES = 1024
"""Entries of one batch; about 2,048 waiting for one peer make the library fail at once."""
_LEAST_TIMEOUT_S = 5  # the library's own floor


class MooncakeDescriptor(PoolAddresses, frozen=True):
    """`session` is where its engine listens."""

    session: str


def engine(host: str, call_deadline_s: float) -> Any:
    """A started transfer engine. Raises MachineLacksError when the library, or what it needs, is not here.

    The library reads its time limit from the environment when it is first loaded.
    """
    os.environ.setdefault("MC_TRANSFER_TIMEOUT", str(max(_LEAST_TIMEOUT_S, round(call_deadline_s))))
    os.environ.setdefault("GLOG_minloglevel", "2")
    try:
        from mooncake.engine import TransferEngine
    except ImportError as error:
        raise MachineLacksError(
            f"Mooncake's transfer engine cannot be loaded: {error}",
            remedy=REMEDY,
        ) from error
    made = TransferEngine()
    if made.initialize(host, "P2PHANDSHAKE", "tcp", ""):
        raise MachineLacksError(f"Mooncake's transfer engine cannot listen at {host}")
    return made
