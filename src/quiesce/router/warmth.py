"""Who computed a prompt's beginning before: a hint for choosing a pair, never a promise that it is still cached."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from quiesce.ids import Incarnation

BLOCK_TOKENS = 128
MOST_BLOCKS = 32
"""Of a prompt. Who shares so much is as likely to share the rest."""
MOST_REMEMBERED = 1 << 16
MOST_LIVES = 4
"""Of one block: with more, whoever is least busy is as good."""
_TOKEN_BYTES = 4


def beginnings(token_ids: bytes, salt: str) -> tuple[bytes, ...]:
    """Digests of a prompt's first block, first two blocks and so on, under the salt of its tenant's prefix cache.

    `token_ids` is a packed little-endian uint32 array. A prompt shorter than a block has none.
    """
    hasher = hashlib.blake2b(salt.encode(), digest_size=16, person=b"quiesce-warmth")
    block_bytes = BLOCK_TOKENS * _TOKEN_BYTES
    digests = []
    for block in range(min(len(token_ids) // block_bytes, MOST_BLOCKS)):
        hasher.update(token_ids[block * block_bytes : (block + 1) * block_bytes])
        digests.append(hasher.digest())
    return tuple(digests)


class Warmth:
    """Which lives of workers have computed which beginnings lately. Bounded; what was not used longest is forgotten."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._lives: OrderedDict[bytes, tuple[Incarnation, ...]] = OrderedDict()

    def remember(self, digests: tuple[bytes, ...], lives: tuple[Incarnation, ...]) -> None:
        """These lives served a prompt that begins so. Of an old prompt the longest beginnings are forgotten first."""
        for digest in reversed(digests):
            before = self._lives.pop(digest, ())
            self._lives[digest] = (*lives, *(life for life in before if life not in lives))[:MOST_LIVES]
        while len(self._lives) > self._most:
            self._lives.popitem(last=False)

    def forget(self) -> None:
        """The workers' caches were flushed."""
        self._lives.clear()

    def shares(self, digests: tuple[bytes, ...]) -> Callable[[Incarnation], float]:
        """For a life, how much of a prompt's beginning it may have: 0 to 1."""
        length: dict[Incarnation, int] = {}
        for known, digest in enumerate(digests):
            lives = [life for life in self._lives.get(digest, ()) if length.get(life, 0) == known]
            if not lives:
                break
            length.update(dict.fromkeys(lives, known + 1))
        return lambda life: length.get(life, 0) / len(digests) if length else 0.0
