"""What people call the things of a world: requests by letter, lives by primes, messages by kind and way."""

from __future__ import annotations

import re
from collections.abc import Mapping

from quiesce.ids import Attempt, AttemptKey, Digest, Incarnation, PageTag, Peer
from quiesce.lab.explorer.lives import life
from quiesce.lab.explorer.world import World
from quiesce.protocol.invariants import Flight
from quiesce.protocol.messages import Ask, Body, Done, Envelope, Fail, Offer, OpenAttempts, Publish
from quiesce.protocol.reasons import kind_of

LIVES = {life(kind, index, number): number for kind in "de" for index in range(10) for number in range(10)}

_KEY = re.compile(r"AttemptKey\(decode=Peer\(rank=\d+, incarnation='(\w+)'\), attempt=(\d+)\)")
_ATTEMPT = re.compile(r"attempt (\d+)")
_PEER = re.compile(r"(\d+)@\w\d(\w\w)\w+")


class Names:
    """Knows which request every attempt so far belongs to; `after` adds those of one more world."""

    def __init__(self, world: World, known: Mapping[tuple[Incarnation, Attempt], str] | None = None) -> None:
        config = world.config
        self._requests = dict(known or {})
        self._ranks = config.ranks
        self._what = "read" if config.pull else "write"
        self._prompts = {each.digest: each.prompt for each in config.requests}
        self._digests = {each.name: each.digest for each in config.requests}
        for number, attempt in world.receiver.attempts.items():
            self._requests.setdefault((world.receiver.incarnation, number), str(attempt.request))

    def after(self, world: World) -> Names:
        return Names(world, self._requests)

    # ------------------------------------------------------------ who

    def prefill(self, peer: Peer) -> str:
        return f"prefill {peer.rank}{_primes(peer.incarnation)}"

    def decode(self, peer: Peer) -> str:
        return f"decode{self._rank(peer.rank)}{_primes(peer.incarnation)}"

    def _rank(self, rank: int) -> str:
        return f" {rank}" if self._ranks > 1 else ""

    def attempt(self, life_: Incarnation, number: Attempt) -> str:
        return self._requests.get((life_, number), f"attempt {number}")

    def attempt_of(self, name: str, world: World) -> Attempt | None:
        """The attempt of a request in this decode life."""
        mine = (
            (number, each) for (life_, number), each in self._requests.items() if life_ == world.receiver.incarnation
        )
        return next((number for number, each in mine if each == name), None)

    def key(self, key: AttemptKey) -> str:
        """An attempt at one decode rank."""
        name = self.attempt(key.decode.incarnation, key.attempt)
        return f"{name} of {self.decode(key.decode)}" if self._ranks > 1 else name

    def digest(self, digest: Digest) -> str:
        return f"prompt {self._prompts[digest]}" if digest in self._prompts else "torn bytes"

    def tag(self, tag: PageTag) -> str:
        """Whose tag it is: `World` counts 100 tags a life, one an attempt."""
        number, attempt = divmod(tag, 100)
        return self.attempt(life("d", 0, number), Attempt(attempt))

    def page(self, rank: int, page: int) -> str:
        return f"decode {rank}, page {page}" if self._ranks > 1 else f"page {page}"

    # ------------------------------------------------------------ what

    def write(self, flight: Flight, how: str = "") -> str:
        """A write, or in pull a read."""
        return f"{self._what} {flight.write}{how} ({self.key(flight.key)}, {self.prefill(flight.sender)})"

    def message(self, message: Envelope) -> str:
        """`ABORT A to prefill 0 (A open)`; what is in brackets tells messages apart that look alike without it."""
        from_decode = message.open_attempts is not None
        decode, prefill = (message.sender, message.to) if from_decode else (message.to, message.sender)
        name = self.attempt(decode.incarnation, message.attempt)
        way = "to" if from_decode else "from"
        where = self._decode_part(decode, "from" if from_decode else "to")
        facts = ", ".join((*self._body(name, message.body), *self._open(decode.incarnation, message.open_attempts)))
        said = f"{kind_of(message.body).upper()} {name} {way} {self.prefill(prefill)}{where}"
        return f"{said} ({facts})" if facts else said

    def _decode_part(self, decode: Peer, way: str) -> str:
        plain = self._ranks == 1 and not _primes(decode.incarnation)
        return "" if plain else f" {way} {self.decode(decode)}"

    def _body(self, name: str, body: Body) -> tuple[str, ...]:
        match body:
            case Fail(failure=failure, poisoned=poisoned):
                return (failure.code, "poisoned") if poisoned else (failure.code,)
            case Done(digest=digest) | Publish(digest=digest) | Ask(digest=digest) | Offer(digest=digest) if (
                digest != self._digests.get(name, digest)
            ):
                return (f"of {self.digest(digest)}",)
        return ()

    def _open(self, life_: Incarnation, told: OpenAttempts | None) -> tuple[str, ...]:
        if told is None:
            return ()
        numbers = (Attempt(number) for number in range(1, told.watermark))
        return tuple(
            f"{self.attempt(life_, number)} {'closed' if told.is_closed(number) else 'open'}" for number in numbers
        )

    def reworded(self, said: str, world: World) -> str:
        """What an invariant says, in these names."""
        said = _KEY.sub(lambda m: self.attempt(Incarnation(m[1]), Attempt(int(m[2]))), said)
        said = _ATTEMPT.sub(lambda m: self.attempt(world.receiver.incarnation, Attempt(int(m[1]))), said)
        return _PEER.sub(lambda m: f"prefill {m[1]}" + "'" * int(m[2], 16), said)


def _primes(incarnation: Incarnation) -> str:
    """One for each earlier life."""
    return "'" * LIVES.get(incarnation, 0)
