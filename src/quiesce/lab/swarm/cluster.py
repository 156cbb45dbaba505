"""A simulated cluster: workers by name over their lives, what befalls them, healing, and whether all is quiet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quiesce.ids import Attempt, Peer
from quiesce.lab.swarm.decode import DecodeWorker
from quiesce.lab.swarm.faults import Fault
from quiesce.lab.swarm.flights import AnyAir
from quiesce.lab.swarm.ground import Ground
from quiesce.lab.swarm.network import DIAL_S, Network
from quiesce.lab.swarm.prefill import PrefillWorker
from quiesce.lab.swarm.reading import Reads
from quiesce.lab.swarm.router import Router
from quiesce.lab.swarm.transport import Writes
from quiesce.lab.swarm.without import Without
from quiesce.protocol import invariants, pull_invariants
from quiesce.protocol.attempt import Phase
from quiesce.protocol.invariants import Flight, Picture
from quiesce.protocol.lender_io import ReaderDead
from quiesce.protocol.receiver_io import FenceProved
from quiesce.protocol.sender_io import DecodeReplaced

Worker = DecodeWorker | PrefillWorker
SILENCE_S = 2.0
FENCE_S = 0.01
GRACE_S = 2.0
LOOK_EVERY = 4096
"""The invariants that production states about its own machines are evaluated after so many events."""


class Cluster:
    """What `without` names is taken away, for mutants only."""

    def __init__(self, ground: Ground, without: Without) -> None:
        p = ground.p
        self.ground, self.without = ground, without
        self.network = Network(ground)
        self.pulls = p.transfer == "pull"
        self.writes, self.reads = Writes(ground), Reads(ground, serves_shut=without.refusal)
        self.air: AnyAir = self.reads if self.pulls else self.writes
        self._answers: dict[str, bool] = {}
        self._healed = False
        self.prefills = [PrefillWorker(ground, self, k, 0) for k in range(p.prefills)]
        self.decodes = [DecodeWorker(ground, self, k, 0) for k in range(p.decodes)]
        self.router = Router(ground, self)
        for decode in self.decodes:
            for prefill in self.prefills:
                self.network.dial(decode, prefill)

    def pace_of(self, name: str) -> float:
        """How fast the clocks of a worker go, in all its lives."""
        number = sum(map(ord, name)) * 31 + int(name.split()[-1])
        return 1.0 + self.ground.p.pace_spread * (self.ground.fates.unit(97, (number,)) - 0.5)

    @property
    def workers(self) -> Iterator[Worker]:
        yield from self.prefills
        yield from self.decodes

    def named(self, name: str) -> Worker | None:
        return next((worker for worker in self.workers if worker.name == name), None)

    def answers(self, worker: Worker) -> bool:
        """Whether the router may use it: it answers, and is ready."""
        life = worker.life
        return not (life.dead or life.worn_out) and self._answers.get(worker.name, True)

    def queue_changed(self, before: int, now: int) -> None:
        """A worker says that so many wait there now: the router looks again at one that was full."""
        if now < self.ground.p.max_queue <= before:
            self.router.look_again()

    def knows(self, ask: int) -> bool:
        """Whether any worker has anything of a request."""
        known = [str(r) for w in self.prefills for rank in w.ranks for r in rank.state.requests]
        known += [str(a.request) for w in self.decodes for a in w.state.attempts.values()]
        return any(request.startswith(f"r{ask}.") for request in known)

    # ------------------------------------------------------------ faults

    def strike(self, fault: Fault) -> None:
        """A fault of the schedule. One that finds nobody, or that comes after the healing, does nothing."""
        worker, other = self.named(fault.worker), self.named(fault.other)
        if worker is None or worker.life.dead or self._healed:
            return
        self.ground.tell(f"fault: {fault.what} {fault.worker} {fault.other}".rstrip())
        if fault.what == "crash":
            self.crash(worker, fault.lasts_s)
        elif fault.what == "stall":
            self._stall(worker, fault.lasts_s)
        elif fault.what == "cut the router":
            self._cut_router(worker, fault.lasts_s)
        elif isinstance(worker, DecodeWorker) and isinstance(other, PrefillWorker) and not other.life.dead:
            self.network.cut(worker, other, fault.lasts_s)

    def crash(self, worker: Worker, down_s: float) -> None:
        """A process dies: its machines, its memory, its clocks. A new life follows."""
        self._mark_crash(worker)
        worker.life.dead = True
        self.ground.tell(f"{worker.title} is dead")
        if isinstance(worker, PrefillWorker):
            self._bury_prefill(worker)
        else:
            self._bury_decode(worker)
        self.router.workers_changed()
        self.ground.loop.after(self.ground.p.message_s, None, self.router.lost, worker)
        self.ground.loop.after(down_s, None, self._restart, worker)

    def _mark_crash(self, worker: Worker) -> None:
        marks, flights, moved = self.ground.marks, list(self.air.everything()), self.air.moved
        if isinstance(worker, PrefillWorker) and any(flight.sender.worker is worker for flight in flights):
            marks.hit(f"prefill crashed with {moved}s in flight")
        if isinstance(worker, DecodeWorker) and any(f.key.decode in worker.peers for f in flights):
            marks.hit(f"decode crashed with {moved}s in flight")

    def _bury_prefill(self, worker: PrefillWorker) -> None:
        stores = self.ground.p.transport == "stores" and not self.pulls
        for rank in worker.ranks if stores else ():
            self.writes.stop_stores(rank)
        for decode in self.decodes:
            self.network.close(decode, worker)
            if stores and self.network.joined(decode, worker):
                for peer in worker.peers:
                    self.ground.loop.after(2 * self.ground.p.message_s, decode.life, self._proved, decode, peer)

    def _proved(self, decode: DecodeWorker, peer: Peer) -> None:
        """The kernel says that a writer of plain stores is no more: nothing of it can land."""
        self.ground.marks.hit("fence")
        decode.feed(FenceProved(peer))

    def _bury_decode(self, worker: DecodeWorker) -> None:
        parts = [part.memory for handoff in worker.handoffs.values() for part in handoff.parts]
        for memory in (*worker.pools, *parts):
            memory.gone = True
        for prefill in self.prefills:
            self.network.close(worker, prefill)
            delay_s = 2 * self.ground.p.message_s
            self.ground.loop.after(delay_s, prefill.life, self._tell_death, prefill, worker)

    def _tell_death(self, prefill: PrefillWorker, worker: DecodeWorker) -> None:
        self.ground.marks.hit("decode restarted")
        for rank in prefill.ranks:
            rank.feed(DecodeReplaced(worker.peers[0]))
        if self.pulls and self.deaths_are_known:
            self.ground.loop.after(FENCE_S, prefill.life, self._reader_died, prefill, worker)

    def _reader_died(self, prefill: PrefillWorker, worker: DecodeWorker) -> None:
        """The kernel says so, or it was shut out: whatever it was lent, nobody reads."""
        self.ground.marks.hit("reader is dead")
        for rank in prefill.ranks:
            for peer in worker.peers:
                rank.feed(ReaderDead(peer))

    @property
    def deaths_are_known(self) -> bool:
        """In pull: on one host the kernel tells; elsewhere who was replaced is shut out, where a fence does that."""
        return self.ground.p.transport == "stores" or self.ground.p.fence

    def _restart(self, old: Worker) -> None:
        """The same name, a new life: fresh memory, nothing known."""
        self._answers[old.name] = True
        fresh: Worker
        if isinstance(old, PrefillWorker):
            fresh = self.prefills[old.index] = PrefillWorker(self.ground, self, old.index, old.number + 1)
        else:
            fresh = self.decodes[old.index] = DecodeWorker(self.ground, self, old.index, old.number + 1)
        for memory, heir in zip(old.pools, fresh.pools, strict=True):
            memory.heir = heir if fresh.name.split()[0] in self.without.fresh_memory else None
        self.ground.tell(f"{fresh.title} begins")
        for decode in self.decodes:
            for prefill in self.prefills:
                if fresh in (decode, prefill):
                    self.ground.loop.after(DIAL_S, None, self.network.dial, decode, prefill)

    def _stall(self, worker: Worker, lasts_s: float) -> None:
        """A process stops and goes on later; what came meanwhile waits for it."""
        self.ground.marks.hit("worker stalled")
        now_s = self.ground.loop.now_s
        worker.life.stopped_until_s = max(worker.life.stopped_until_s, now_s + lasts_s)
        if lasts_s > SILENCE_S:
            self.ground.loop.after(SILENCE_S, worker.life, self._nobody_home, worker)
            self.ground.loop.after(SILENCE_S, None, self._fall_silent, worker)

    def _fall_silent(self, worker: Worker) -> None:
        if not worker.life.dead and worker.life.stopped_until_s > self.ground.loop.now_s:
            self._answers[worker.name] = False
            self.router.workers_changed()
            self.router.silent(worker)

    def _nobody_home(self, worker: Worker) -> None:
        """It goes on, and answers the next ping."""
        self._answers[worker.name] = True
        self.router.workers_changed()

    def _cut_router(self, worker: Worker, lasts_s: float) -> None:
        self._answers[worker.name] = False
        self.router.workers_changed()
        self.ground.loop.after(self.ground.p.message_s, None, self.router.lost, worker)
        self.ground.loop.after(lasts_s, None, self._nobody_home, worker)

    def quarantined(self, worker: Worker) -> None:
        """Over its budget of quarantine a worker takes nothing new, and soon begins a new life."""
        if worker.life.worn_out:
            return
        for memory in worker.pools:
            if memory.allocator.counts()["quarantined"] > self.ground.p.quarantine_budget * memory.allocator.pages:
                self.ground.marks.hit("new life because of quarantine")
                worker.life.worn_out = True
                self.router.workers_changed()
                self.ground.loop.after(GRACE_S, worker.life, self.crash, worker, FENCE_S)
                return

    # ------------------------------------------------------------ fences

    def known_dead(self, decode: DecodeWorker, peer: Peer) -> bool:
        """Whether decode may take a writer's death for a fence: plain stores only."""
        if self.ground.p.transport != "stores":
            return False
        return all(peer not in worker.peers for worker in self.prefills if not worker.life.dead)

    def try_fence(self, decode: DecodeWorker, attempt: Attempt, peer: Peer) -> None:
        """Fence if that costs nothing to others; kill the writer if the policy says so and its death is a fence."""
        p, loop = self.ground.p, self.ground.loop
        if self.known_dead(decode, peer):
            self.ground.marks.hit("fence after deadline")
            loop.after(0.0, decode.life, decode.feed, FenceProved(peer, attempt))
        elif p.transport == "network":
            if p.fence:
                loop.after(FENCE_S, decode.life, self._revoke, decode, attempt, peer)
        elif p.fence_policy == "fence":
            worker = next((each for each in self.prefills if peer in each.peers and not each.life.dead), None)
            if worker is not None:
                self.ground.marks.hit("writer killed as a fence")
                loop.after(FENCE_S, None, self._kill, worker)

    def _kill(self, worker: PrefillWorker) -> None:
        if not worker.life.dead:
            self.crash(worker, FENCE_S)

    def _revoke(self, decode: DecodeWorker, attempt: Attempt, peer: Peer) -> None:
        """The window of this attempt is closed to this peer, and the placing thread was joined."""
        self.ground.marks.hit("fence")
        self.ground.marks.hit("fence after deadline")
        self.writes.shut(decode.incarnation, attempt, peer)
        decode.feed(FenceProved(peer, attempt))

    # ------------------------------------------------------------ healing and quiet

    def heal(self) -> None:
        """No new fault from now on. What was cut joins, what was stopped goes on, what was launched still lands."""
        self._healed = True
        self.ground.fates.healed = True
        self.ground.tell("healed: no new fault from here on")
        self.network.heal()
        for decode in self.decodes:
            for prefill in self.prefills:
                self.ground.loop.after(DIAL_S, None, self.network.dial, decode, prefill)

    def pictures(self) -> Iterator[Picture]:
        """Each decode life with all senders, as production's own invariants look at them."""
        senders = tuple(rank.state for worker in self.prefills if not worker.life.dead for rank in worker.ranks)
        flights = frozenset(
            Flight(each.me, each.key, each.number, each.request, each.reads)
            for each in self.air.everything()
            if not (each.shut or each.memory.over)
        )
        for decode in self.decodes:
            if not decode.life.dead:
                yield Picture(decode.state, senders, flights)

    def wrong_now(self) -> Iterator[str]:
        """What production's own invariants say. Staged, a lease's pages are others' from commit on or count from 0, and
        the machine does not know it: that no page is two hand-offs' is for `no_alias`, which looks at pages.
        """
        staged = self.ground.p.landing == "staged"
        for picture in self.pictures():
            yield from (each for each in invariants.broken(picture) if not (staged and each.startswith("no_alias")))

    def unprovable(self) -> frozenset[Peer]:
        """Whose proofs can never come: a life is over, and its writes need a fence that this transport has not."""
        p = self.ground.p
        if p.transport == "stores" or p.fence:
            return frozenset()
        alive = {peer for worker in self.prefills if not worker.life.dead for peer in worker.peers}
        granted = {peer for d in self.decodes for a in d.state.attempts.values() for peer in a.grants}
        return frozenset(granted - alive)

    def wrong_when_quiet(self) -> Iterator[str]:
        """What is still held, reserved, running or open although nothing goes on."""
        yield from self._pull_left() if self.pulls else self._push_left()
        for worker in self.decodes:
            yield from self._pages_left(worker)
        for each in self.workers:
            if each.queued >= self.ground.p.max_queue:
                yield f"{each.name} refuses everything although nobody waits"
        for name in self.router.pairs.troubled():
            yield f"the breaker of {name} does not close again"
        if not self.router.turns.empty:
            yield "requests wait at the router"

    def _push_left(self) -> Iterator[str]:
        unprovable = self.unprovable()
        for picture in self.pictures():
            yield from (each for each in invariants.no_leak(picture, unprovable) if not self._is_others(each, picture))

    def _pull_left(self) -> Iterator[str]:
        pullers: list[Any] = [each.receiver for each in self.pictures()]
        known = {"can_revoke": self.reads.can_revoke, "deaths_are_known": self.deaths_are_known}
        for picture, puller in zip(self.pictures(), pullers, strict=True):
            yield from pull_invariants.no_leak(puller, picture.senders, others=pullers, **known)

    def _is_others(self, wrong: str, picture: Picture) -> bool:
        """Sources and records that await the fence of *another* decode life than this picture's."""
        others = [other for other in self.pictures() if other.receiver is not picture.receiver]
        return " holds the source of " in wrong and any(wrong not in invariants.no_leak(other) for other in others)

    def _pages_left(self, worker: DecodeWorker) -> Iterator[str]:
        """Every page is free or cached, or in quarantine with an attempt that is."""
        for memory in worker.pools:
            left = {name: n for name, n in memory.allocator.counts().items() if n}
            for name in ("used", "reserved", "held"):
                if name in left:
                    yield f"{left[name]} pages of {memory.where} are still {name}"
            attempts = worker.state.attempts.values()
            if "quarantined" in left and not any(attempt.phase is Phase.QUARANTINED for attempt in attempts):
                yield f"{left['quarantined']} pages of {memory.where} are quarantined for nobody"

    def is_quiet(self) -> bool:
        """Nobody waits, nothing is under way, nobody who is stopped has yet to hear anything, and nothing is held that
        should not be.
        """
        stopped = any(worker.life.stopped_until_s > self.ground.loop.now_s for worker in self.workers)
        if stopped or not self.router.idle or not self.air.empty:
            return False
        return next(self.wrong_when_quiet(), None) is None
