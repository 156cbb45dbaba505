"""One step of the puller machine under way."""

from __future__ import annotations

from quiesce.protocol.attempt import PullerState
from quiesce.protocol.receiver_turn import DecodeTurn

PullerTurn = DecodeTurn[PullerState]
