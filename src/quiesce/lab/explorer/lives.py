"""Which life of which worker: incarnations that a reader can tell apart."""

from __future__ import annotations

from quiesce.ids import Incarnation, Peer


def life(kind: str, index: int, number: int) -> Incarnation:
    """The `number`-th life of decode (`d`) or of prefill rank `index` (`e`)."""
    return Incarnation(f"{kind}{index}{number:02x}".ljust(32, "0"))


def number_of(incarnation: Incarnation) -> int:
    """Which life it is, from 0."""
    return int(incarnation[2:4], 16)


def is_decode(peer: Peer) -> bool:
    return peer.incarnation[0] == "d"


def shown(peer: Peer) -> str:
    """`d0` or `p1`, with a prime for each life that came before: `p1'` is the second life of prefill rank 1."""
    return f"{'d' if is_decode(peer) else 'p'}{peer.rank}{chr(39) * number_of(peer.incarnation)}"
