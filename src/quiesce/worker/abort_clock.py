"""How long prefill takes to answer an ABORT: its part of the hold inequality."""

from __future__ import annotations

import time
from collections import OrderedDict

from quiesce.ids import AttemptKey
from quiesce.protocol.messages import Abort, AbortAck, Envelope
from quiesce.telemetry.metrics import Telemetry

MOST_KNOWN = 4096
"""Aborts remembered at once, answered ones too, which may be heard and answered again."""


class AbortClock:
    """Observes `quiesce_abort_answer_seconds`. Sees every message in and out."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._histogram = telemetry.histogram("quiesce_abort_answer_seconds")
        self._heard_s: OrderedDict[AttemptKey, float | None] = OrderedDict()  # None: answered

    def heard(self, envelope: Envelope) -> None:
        """A message from decode arrived. Aborts that are sent again do not start the clock anew."""
        if isinstance(envelope.body, Abort):
            self._heard_s.setdefault(AttemptKey(envelope.sender, envelope.attempt), time.monotonic())
            if len(self._heard_s) > MOST_KNOWN:
                self._heard_s.popitem(last=False)

    def replied(self, envelope: Envelope) -> None:
        """A message to decode leaves."""
        if isinstance(envelope.body, AbortAck):
            key = AttemptKey(envelope.to, envelope.attempt)
            heard_s = self._heard_s.get(key)
            if heard_s is not None:
                self._histogram.observe(time.monotonic() - heard_s)
                self._heard_s[key] = None
