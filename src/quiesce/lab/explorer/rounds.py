"""Back-off without rounds: they only say how long until something is sent again, and worlds have no time."""

from __future__ import annotations

from contextlib import AbstractContextManager

from quiesce.lab.patches import patched
from quiesce.protocol import receiver_rules, sender_rules


def without_rounds() -> AbstractContextManager[None]:
    """Within this block the machines stop counting re-sends at 0, so that the states of a world are fewer."""
    return patched((receiver_rules, "MAX_RESEND_ROUND", 0), (sender_rules, "MAX_RESEND_ROUND", 0))
