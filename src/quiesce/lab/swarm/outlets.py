"""How a prompt's pages leave a simulated prefill rank: it writes them (push), or lends them to decode (pull).

Each has one of production's two machines, and does what that one alone orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from quiesce.ids import AttemptKey, PageTag
from quiesce.kv.runs import pack_runs, unpack_runs
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.job import Job
from quiesce.lab.swarm.reading import Window
from quiesce.lab.swarm.transport import Write
from quiesce.protocol import lender, sender
from quiesce.protocol import lender_io as pull
from quiesce.protocol import sender_io as io
from quiesce.protocol.messages import AbortAck, Committed, Done, Envelope, Lease, Offer

if TYPE_CHECKING:
    from quiesce.lab.swarm.cluster import Cluster
    from quiesce.lab.swarm.prefill import PrefillRank


class PushOutlet:
    """The sender machine."""

    step = staticmethod(sender.step)

    def __init__(self, ground: Ground, cluster: Cluster, rank: PrefillRank) -> None:
        self._ground, self._cluster, self._rank, self._writes = ground, cluster, rank, cluster.writes
        self.first: Any = sender.start(rank.me, ground.p.window, ground.p.batch_pages)
        self.do: dict[type, Callable[[Any], None]] = {io.Launch: self._launch, io.Poisoned: self._poisoned}

    def says(self, envelope: Envelope) -> None:
        """What is checked of a message before it leaves."""
        if isinstance(envelope.body, (AbortAck, Done)):
            key = AttemptKey(envelope.to, envelope.attempt)
            what = "DONE" if isinstance(envelope.body, Done) else "ABORT_ACK"
            about = self._ground.tale(envelope.to.incarnation, envelope.attempt).ask
            self._ground.checks.no_early_ack.said(what, self._writes.of(self._rank.me, key), self._rank.name, about)

    def hears(self, envelope: Envelope) -> None:
        """Nothing to note."""

    def computed(self, job: Job, first: int, pages: int, last: bool, token: int) -> None:
        """Pages of what decode lacks are final."""
        self._rank.feed(io.ChunkComputed(job.submission.request, first, pages, last, token))

    def may_cache(self, job: Job) -> bool:
        """All of it has landed."""
        return not self._writes.reading(self._rank, job.submission.request, tuple(job.places))

    # ------------------------------------------------------------ writes

    def _launch(self, effect: io.Launch) -> None:
        """Counted before; one that cannot start settles as quiesced."""
        life = effect.key.decode.incarnation
        stream = self._cluster.network.stream(life, self._rank.me.incarnation)
        job = self._rank.jobs.get(effect.request)
        if stream is None or job is None or not job.pages:
            self.settled(effect, io.Outcome.FAILED_QUIESCED)
            return
        memory = stream.decode.landings.written(effect.key, stream.decode.handoffs.get(effect.key.attempt))
        places = job.places.get(effect.key)
        if places is None:
            places = job.places[effect.key] = unpack_runs(effect.lease.runs, memory.allocator.pages).tolist()
        span = slice(effect.first_page, effect.first_page + effect.pages)
        sources, cells = job.pages[job.held :][span], self._rank.memory.cells[0]
        flight = Write(self._rank, effect, memory, self._ground.tale(life, effect.key.attempt))
        flight.moves(sources, places[span], [cells[page][1] for page in sources], self.settled)
        self._writes.launch(flight, self._rank.worker.index, stream.decode.index)

    def settled(self, launch: io.Launch, outcome: io.Outcome) -> None:
        self._rank.feed(io.WriteSettled(launch.key, launch.write, outcome))

    def _poisoned(self, effect: io.Poisoned) -> None:
        self._ground.marks.hit("attempt poisoned")
        self._rank.poison(effect.key)


class PullOutlet:
    """The lender machine, and its windows. Each bears a tag of its own, which no other window of this life bears."""

    step = staticmethod(lender.step)

    def __init__(self, ground: Ground, cluster: Cluster, rank: PrefillRank) -> None:
        self._ground, self._rank, self._reads = ground, rank, cluster.reads
        self._tags = itertools.count(rank.memory.base + 1)
        self._lent: dict[AttemptKey, Job] = {}
        self.first: Any = lender.start(rank.me)
        self.do: dict[type, Callable[[Any], None]] = {
            pull.Lend: self._lend,
            pull.Revoke: self._revoke,
            pull.TakeBack: self._take_back,
        }

    def says(self, envelope: Envelope) -> None:
        """What is offered can be read."""
        if isinstance(envelope.body, Offer):
            open_ = self._reads.window(self._rank.me, envelope.body.lease.tag) is not None
            about = self._ground.tale(envelope.to.incarnation, envelope.attempt).ask
            self._ground.checks.armed_first.offered(open_, self._rank.name, about)

    def hears(self, envelope: Envelope) -> None:
        """Rule 12 asks how it ended."""
        key = AttemptKey(envelope.sender, envelope.attempt)
        if isinstance(envelope.body, Committed) and key in self._lent:
            self._lent[key].committed.add(key)

    def computed(self, job: Job, first: int, pages: int, last: bool, token: int) -> None:
        """Nothing is lent before all of it is there."""
        if last:
            lent = np.array(job.pages[job.held :], np.int32)
            runs = pack_runs(lent)
            ranks = range(self._ground.p.decode_ranks)
            leases = tuple(Lease(PageTag(next(self._tags)), len(lent), runs, 0) for _ in ranks)
            self._rank.feed(pull.Computed(job.submission.request, leases, token))

    def may_cache(self, job: Job) -> bool:
        """Every decode rank said that it was read."""
        return bool(job.places) and job.committed.issuperset(job.places)

    # ------------------------------------------------------------ windows

    def _lend(self, effect: pull.Lend) -> None:
        job = self._lent[effect.key] = self._rank.jobs[effect.request]
        pages = job.places[effect.key] = job.pages[job.held :]
        texts = list(job.submission.text.labels[job.held :])
        self._reads.lend(self._rank.me, effect.lease.tag, Window(effect.request, pages, texts))
        self._rank.lends(job, effect.key)

    def _revoke(self, effect: pull.Revoke) -> None:
        """A fact at once, where the transport can. Where it cannot, decode's word or its death is awaited."""
        if self._reads.revoke(self._rank.me, effect.lease.tag):
            self._rank.feed(pull.Revoked(effect.key))
        else:
            deadline_s = self._ground.p.hold_deadline_s
            clocks, subject = self._rank.worker.clocks, self._clock_of(effect.key)
            clocks.start(subject, "hold", deadline_s, self._quarantine, effect.key)

    def _quarantine(self, key: AttemptKey) -> None:
        self._ground.marks.hit("loan quarantined")
        self._rank.poison(key)

    def _take_back(self, effect: pull.TakeBack) -> None:
        self._ground.marks.hit("window taken back")
        self._reads.take_back(self._rank.me, effect.lease.tag)
        self._rank.worker.clocks.stop(self._clock_of(effect.key))
        self._rank.takes_back(self._lent.pop(effect.key), effect.key)

    def _clock_of(self, key: AttemptKey) -> tuple[int, str, AttemptKey]:
        """A subject of its own: the machine's clocks of the attempt stop without this one."""
        return self._rank.me.rank, "window", key


AnyOutlet = PushOutlet | PullOutlet
