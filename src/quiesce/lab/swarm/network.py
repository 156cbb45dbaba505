"""Control streams between decode and prefill workers: late, lossy, cut, opened again; and news of who died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.ids import Incarnation, Peer
from quiesce.lab.swarm import fates, strays
from quiesce.lab.swarm.ground import Ground, Tale
from quiesce.protocol.messages import (
    Abort,
    AbortAck,
    Ask,
    Bound,
    Committed,
    Done,
    Envelope,
    Fail,
    Fenced,
    Offer,
    Progress,
    Publish,
)
from quiesce.protocol.reasons import kind_of
from quiesce.protocol.receiver_io import PeerReplaced, StreamLost
from quiesce.protocol.sender_io import DecodeLost

if TYPE_CHECKING:
    from quiesce.lab.swarm.decode import DecodeWorker
    from quiesce.lab.swarm.prefill import PrefillWorker

KINDS = (Publish, Bound, Progress, Done, Committed, Fail, Abort, AbortAck, Fenced, Ask, Offer)
KIND_CODES: dict[type, int] = {kind: number for number, kind in enumerate(KINDS)}
DIAL_S = 0.05


class Stream:
    """One stream between a decode life and a prefill life."""

    __slots__ = ("closed", "decode", "due_s", "on_it", "prefill")

    def __init__(self, decode: DecodeWorker, prefill: PrefillWorker) -> None:
        self.decode = decode
        self.prefill = prefill
        self.closed = False
        self.on_it = 0
        self.due_s = {True: 0.0, False: 0.0}


class Network:
    """All streams. `cut_until_s` says until when two workers cannot reach each other."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._streams: dict[tuple[Incarnation, Incarnation], Stream] = {}
        self._joined: dict[tuple[Incarnation, str], PrefillWorker] = {}
        self._cut_until_s: dict[tuple[str, str], float] = {}
        self._here: dict[str, DecodeWorker | PrefillWorker] = {}

    # ------------------------------------------------------------ joining

    def dial(self, decode: DecodeWorker, prefill: PrefillWorker) -> None:
        """Connect two lives, now or when they can reach each other."""
        if decode.life.dead or prefill.life.dead:
            return
        self._here |= {decode.name: decode, prefill.name: prefill}
        loop = self._ground.loop
        wait_s = self._cut_until_s.get((decode.name, prefill.name), 0.0) - loop.now_s
        stopped_s = max(decode.life.stopped_until_s, prefill.life.stopped_until_s) - loop.now_s
        if max(wait_s, stopped_s) > 0:
            loop.after(max(wait_s, stopped_s) + DIAL_S, None, self.dial, decode, prefill)
        elif self.stream(decode.incarnation, prefill.incarnation) is None:
            self._join(decode, prefill)

    def _join(self, decode: DecodeWorker, prefill: PrefillWorker) -> None:
        self._streams[decode.incarnation, prefill.incarnation] = Stream(decode, prefill)
        old = self._joined.get((decode.incarnation, prefill.name))
        self._joined[decode.incarnation, prefill.name] = prefill
        self._ground.tell(f"{decode.title} and {prefill.title} are connected")
        if old is not None and old is not prefill:
            self._ground.marks.hit("prefill restarted")
            for rank in range(self._ground.p.prefill_ranks):
                decode.feed(PeerReplaced(Peer(rank, old.incarnation)))
        decode.peers_changed()

    def stream(self, decode: Incarnation, prefill: Incarnation) -> Stream | None:
        return self._streams.get((decode, prefill))

    def grants(self, decode: DecodeWorker, prefill: str) -> tuple[Peer, ...]:
        """The ranks of a prefill worker that decode has a stream to; () when it cannot be paired with now."""
        joined = self._joined.get((decode.incarnation, prefill))
        if joined is None or (decode.incarnation, joined.incarnation) not in self._streams:
            return ()
        return joined.peers

    def joined(self, decode: DecodeWorker, prefill: PrefillWorker) -> bool:
        """Whether decode ever met this life."""
        return self._joined.get((decode.incarnation, prefill.name)) is prefill

    # ------------------------------------------------------------ losing

    def cut(self, decode: DecodeWorker, prefill: PrefillWorker, lasts_s: float) -> None:
        self._cut_until_s[decode.name, prefill.name] = self._ground.loop.now_s + lasts_s
        self.close(decode, prefill)
        self._ground.loop.after(lasts_s + DIAL_S, None, self.dial, decode, prefill)

    def heal(self) -> None:
        self._cut_until_s.clear()

    def close(self, decode: DecodeWorker, prefill: PrefillWorker) -> None:
        """The stream ends with what was on it; each side finds out in its own time."""
        stream = self._streams.pop((decode.incarnation, prefill.incarnation), None)
        if stream is None:
            return
        stream.closed = True
        if stream.on_it:
            self._ground.marks.hit("stream cut with messages on it")
        self._ground.tell(f"the stream between {decode.title} and {prefill.title} is cut")
        delay_s = self._ground.p.message_s
        self._ground.loop.after(delay_s, decode.life, self._decode_learns, stream)
        self._ground.loop.after(delay_s, prefill.life, self._prefill_learns, stream)

    def _decode_learns(self, stream: Stream) -> None:
        decode = stream.decode
        decode.peers_changed()
        for peer in stream.prefill.peers:
            decode.feed(StreamLost(peer))

    def _prefill_learns(self, stream: Stream) -> None:
        if self.stream(stream.decode.incarnation, stream.prefill.incarnation) is not None:
            return  # a newer stream of the same life took its place already
        for rank in stream.prefill.ranks:
            for peer in stream.decode.peers:
                rank.feed(DecodeLost(peer))

    # ------------------------------------------------------------ messages

    def send(self, envelope: Envelope, decode: Incarnation, prefill: Incarnation, to_prefill: bool) -> None:
        """Send on the stream between two lives; dropped when there is none (the machines' clocks send again)."""
        stream = self._streams.get((decode, prefill))
        if stream is None:
            return
        tale = self._ground.tale(decode, envelope.attempt)
        key = self._key(stream, envelope, tale, to_prefill)
        chance = self._ground.fates
        if chance.strikes(fates.LOSE, key, self._name, stream, envelope, tale, key):
            return
        delay_s = self._delay_s(key) + self._extra_s(stream, envelope, tale, key)
        self._put(stream, envelope, to_prefill, delay_s)
        if chance.strikes(fates.COPY, key, self._name, stream, envelope, tale, key):
            longest_s = 0.0 if self._ground.p.ordered else self._ground.p.longest_delay_s
            again_s = longest_s * chance.unit(fates.SPREAD, key) ** 2
            self._put(stream, envelope, to_prefill, delay_s + again_s)
        self._keep(stream, envelope, tale, key)
        if not to_prefill:
            self._lie(stream, envelope, tale, key, delay_s)

    def _keep(self, stream: Stream, envelope: Envelope, tale: Tale, key: fates.Key) -> None:
        """Something between workers keeps a copy past the stream's end, for whoever has the address then."""
        chance = self._ground.fates
        if chance.strikes(fates.STRAY, key, self._name, stream, envelope, tale, key):
            name = stream.prefill.name if key[7] else stream.decode.name
            kept_s = self._ground.p.longest_delay_s * chance.unit(fates.SPREAD, key)
            self._ground.loop.after(kept_s, None, self._find, name, envelope)

    def _find(self, name: str, envelope: Envelope) -> None:
        worker = self._here[name]
        if not worker.life.dead:
            self._ground.loop.after(0.0, worker.life, worker.hear, envelope)

    def _lie(self, stream: Stream, envelope: Envelope, tale: Tale, key: fates.Key, delay_s: float) -> None:
        """What nobody should say, and nobody may be harmed by: an ack before any ABORT, a word of a stranger."""
        chance, decode, about = self._ground.fates, stream.decode, (self._name, stream, envelope, tale, key)
        if isinstance(envelope.body, (Bound, Progress)) and chance.strikes(fates.EARLY_ACK, key, *about):
            self._ground.loop.after(delay_s, decode.life, strays.ack_early, decode, envelope)
        if chance.strikes(fates.FOREIGN, key, *about):
            stranger = self._here[strays.neighbour(stream.prefill.index, self._ground.p.prefills)].incarnation
            said = strays.said_by(stranger, envelope, stream.prefill.incarnation)
            self._ground.loop.after(delay_s, decode.life, decode.hear, said)

    def _delay_s(self, key: fates.Key) -> float:
        message_s = self._ground.p.message_s
        return self._ground.fates.between(fates.DELAY, key, 0.5 * message_s, 2 * message_s)

    def _extra_s(self, stream: Stream, envelope: Envelope, tale: Tale, key: fates.Key) -> float:
        chance = self._ground.fates
        if not chance.strikes(fates.LATE, key, self._name, stream, envelope, tale, key):
            return 0.0
        return self._ground.p.longest_delay_s * chance.unit(fates.SPREAD, key) ** 2

    def _put(self, stream: Stream, envelope: Envelope, to_prefill: bool, delay_s: float) -> None:
        due_s = self._ground.loop.now_s + delay_s
        if self._ground.p.ordered:
            due_s = stream.due_s[to_prefill] = max(stream.due_s[to_prefill], due_s)
        stream.on_it += 1
        life = stream.prefill.life if to_prefill else stream.decode.life
        self._ground.loop.at(due_s, life, self._deliver, stream, envelope, to_prefill)

    def _deliver(self, stream: Stream, envelope: Envelope, to_prefill: bool) -> None:
        if stream.closed:
            return
        stream.on_it -= 1
        if to_prefill:
            stream.prefill.hear(envelope)
        else:
            stream.decode.hear(envelope)

    def _key(self, stream: Stream, envelope: Envelope, tale: Tale, to_prefill: bool) -> fates.Key:
        """Which message it is, whatever else happens in the cluster."""
        sender, to = envelope.sender.rank, envelope.to.rank
        kind = KIND_CODES[type(envelope.body)]
        which = (tale.ask, tale.turn, kind, stream.prefill.index, stream.decode.index, sender, to, int(to_prefill))
        nth = tale.said[which] = tale.said.get(which, 0) + 1
        return (*which, nth)

    def _name(self, stream: Stream, envelope: Envelope, tale: Tale, key: fates.Key) -> str:
        ways = (stream.decode.name, stream.prefill.name)
        if not key[7]:
            ways = ways[::-1]
        ranks = f" (rank {key[5]} to {key[6]})" if key[5] or key[6] else ""
        return f"{kind_of(envelope.body).upper()} {tale.name} from {ways[0]} to {ways[1]}{ranks} the {nth(key[8])} time"


def nth(number: int) -> str:
    """1st, 2nd, 3rd, 4th, ..."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
