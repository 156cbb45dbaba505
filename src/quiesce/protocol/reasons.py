"""Why an input changed nothing (rule 7). Machines count by these words; nothing else is ever said in their place."""

from __future__ import annotations

from enum import StrEnum

from quiesce.protocol.messages import Body


class Reason(StrEnum):
    """The `reason` of `Ignored` and `SenderIgnored`."""

    OTHER_LIFE = "other_life"  # for another rank or an earlier incarnation of this worker
    DEAD_LIFE = "dead_life"  # from an incarnation that is known to be over
    FOREIGN = "foreign"  # from a rank that was never granted this attempt
    EARLY = "early"  # about something that has not happened here
    LATE = "late"  # about something that is over
    DUPLICATE = "duplicate"
    CLOSED = "closed"  # the attempt is released everywhere (rule 9)
    UNKNOWN = "unknown"
    UNEXPECTED = "unexpected"  # this side never receives such a message
    OUTSTANDING = "outstanding"  # an ack that admits writes in flight
    POISONED = "poisoned"  # an abort of an attempt that can never be acked (rule 5)


def kind_of(body: Body) -> str:
    """The tag of a message body, for example `"abort_ack"`."""
    return str(type(body).__struct_config__.tag)
