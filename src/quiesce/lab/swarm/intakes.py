"""How a prompt's pages come to a simulated decode worker: prefill writes them (push), or decode reads them (pull).

Each has one of production's two machines, and does what that one alone orders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quiesce.kv.runs import unpack_runs
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.reading import Read, Window
from quiesce.protocol import puller, receiver
from quiesce.protocol import puller_io as pull
from quiesce.protocol import receiver_io as io
from quiesce.protocol.messages import Abort, AbortAck, Committed, Envelope, Fail, Fenced
from quiesce.protocol.reasons import kind_of
from quiesce.protocol.sender_io import Outcome

if TYPE_CHECKING:
    from quiesce.lab.swarm.cluster import Cluster
    from quiesce.lab.swarm.decode import DecodeWorker


class PushIntake:
    """The receiver machine."""

    step = staticmethod(receiver.step)

    def __init__(self, ground: Ground, cluster: Cluster, worker: DecodeWorker) -> None:
        self._ground, self._cluster, self._worker = ground, cluster, worker
        unsafe = cluster.without.proof
        self.first: Any = receiver.start(worker.incarnation, ground.p.decode_ranks, unsafe_release_on_timeout=unsafe)
        self.do: dict[type, Callable[[Any], None]] = {io.TryFence: self._try_fence}

    def says(self, envelope: Envelope) -> None:
        """What is checked of a message before it leaves."""
        if isinstance(envelope.body, Abort):
            self._worker.check_armed(envelope)

    def held(self, hold: io.Hold) -> None:
        """Say what is proved at once."""
        revoked = self._worker.landings.revoke(self._worker.handoffs[hold.attempt])
        if revoked:
            self._ground.marks.hit("segment revoked")
        for peer in hold.awaiting:
            if revoked or self._cluster.known_dead(self._worker, peer):
                self._worker.feed(io.FenceProved(peer, hold.attempt))

    def _try_fence(self, effect: io.TryFence) -> None:
        for peer in effect.peers:
            self._cluster.try_fence(self._worker, effect.attempt, peer)


class PullIntake:
    """The puller machine, and decode's own endpoint."""

    step = staticmethod(puller.step)

    def __init__(self, ground: Ground, cluster: Cluster, worker: DecodeWorker) -> None:
        p = ground.p
        self._ground, self._cluster, self._worker, self._reads = ground, cluster, worker, cluster.reads
        self.first: Any = puller.start(
            worker.incarnation,
            p.decode_ranks,
            unsafe_release_on_timeout=cluster.without.proof,
            window=p.window,
            batch_pages=p.batch_pages,
        )
        self.do: dict[type, Callable[[Any], None]] = {
            pull.LaunchRead: self._launch,
            pull.CloseEndpoint: self._close,
        }

    def says(self, envelope: Envelope) -> None:
        """It failed only when it is held; it reads no more only when it does not."""
        if isinstance(envelope.body, (Fail, AbortAck)):
            self._worker.check_armed(envelope)
        if isinstance(envelope.body, (AbortAck, Committed, Fenced)):
            me, number = envelope.sender, envelope.attempt
            flying = self._reads.to(me.incarnation, number)
            about = self._ground.tale(me.incarnation, number).ask
            what, reads = kind_of(envelope.body).upper(), sum(each.key.decode == me for each in flying)
            self._ground.checks.no_early_ack.said(what, reads, self._worker.name, about)

    def held(self, hold: io.Hold) -> None:
        """Nothing is proved at once: only decode's own reads can tell."""

    # ------------------------------------------------------------ reads

    def _launch(self, launch: pull.LaunchRead) -> None:
        """Counted before; one that cannot start settles as quiesced."""
        worker, number = self._worker, launch.attempt
        held = worker.is_held(number)
        about = worker.handoffs[number].submission.ask.number
        self._ground.checks.armed_first.launched(number, held, worker.name, about)
        flight = self._flight(launch)
        if flight is None:
            self._ground.marks.hit("read cannot begin")
            self.settled(launch, Outcome.FAILED_QUIESCED)
        else:
            self._reads.launch(flight)

    def _flight(self, launch: pull.LaunchRead) -> Read | None:
        stream = self._cluster.network.stream(self._worker.incarnation, launch.peer.incarnation)
        if stream is None:
            return None
        sender = stream.prefill.ranks[launch.peer.rank]
        sources = unpack_runs(launch.source.runs, sender.memory.allocator.pages).tolist()
        window = self._reads.window(launch.peer, launch.source.tag) or self._unlent(launch, sources)
        if window is None:
            return None
        tale = self._ground.tale(self._worker.incarnation, launch.attempt)
        flight = Read(self._worker, sender, launch, window, tale)
        span = slice(launch.first_page, launch.first_page + launch.pages)
        places = self._worker.handoffs[launch.attempt].parts[launch.decode_rank].places
        flight.moves(sources[span], places[span], window.texts[span], self.settled)
        return flight

    def _unlent(self, launch: pull.LaunchRead, sources: list[int]) -> Window | None:
        """Where windows are words, a read reads whatever lies there by now; it should be the own prompt."""
        if self._reads.can_revoke:
            return None
        submission = self._worker.handoffs[launch.attempt].submission
        return Window(submission.request, sources, list(submission.text.labels[-len(sources) :]))

    def settled(self, launch: pull.LaunchRead, outcome: Outcome) -> None:
        if outcome is Outcome.FAILED_IN_FLIGHT:
            self._ground.marks.hit("attempt poisoned")
        self._worker.feed(pull.ReadSettled(launch.attempt, launch.read, outcome))

    def _close(self, effect: pull.CloseEndpoint) -> None:
        """Free of cost while nobody else reads, by a transport with a fence; hurting others is the policy's."""
        p, life = self._ground.p, self._worker.incarnation
        others = sum(each.key.attempt != effect.attempt for each in self._unsettled())
        if (others or not p.fence) and p.fence_policy != "fence":
            return
        self._ground.marks.hit("endpoint closed while others read" if others else "endpoint closed")
        self._reads.join(life)
        self._worker.feed(pull.EndpointClosed())

    def _unsettled(self) -> list[Read]:
        return [each for each in self._reads.under_way(self._worker.incarnation) if not each.reported]


AnyIntake = PushIntake | PullIntake
