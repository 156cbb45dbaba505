"""All workers, the tries that run on them, and questions asked of them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from quiesce.api.responses import Objection
from quiesce.control.address import Address, show_address
from quiesce.control.restraint import Restraint
from quiesce.control.security import LOCAL, Security
from quiesce.ids import RequestId
from quiesce.protocol.breaker import Phase
from quiesce.protocol.dispatch import (
    Accepted,
    Failed,
    Flush,
    Flushed,
    HandedOff,
    Inspect,
    Inspected,
    PromptTold,
    Scrape,
    Scraped,
    Submit,
    Tokens,
    Welcome,
    WorkerFrame,
    WorkerSnapshot,
)
from quiesce.protocol.messages import Failure
from quiesce.protocol.pairing import CallOff, TryFact
from quiesce.router.breakers import Breakers
from quiesce.router.failures import CLIENT_GONE
from quiesce.router.halves import Halves
from quiesce.router.link import WorkerLink
from quiesce.router.objections import Objections
from quiesce.router.pairs import Pair, cut, misspoken, problems, usable_pairs, why_no_pair
from quiesce.router.serving import MOST_WORKERS, ServingPairs
from quiesce.router.warmth import Warmth
from quiesce.telemetry.spans import ROOT, Spans

_ANSWER_S = 2.0
_AGAIN_S = 0.1
_PING_S = 1.0
_LATELY_S = 5.0
_LINGER_S, _MOST_LINGERING = 60.0, 256
"""How long hand-offs may go on whose clients left (--on-disconnect after-handoff), and how many; others abort."""

Answer = Scraped | Inspected | Flushed

_log = logging.getLogger(__name__)


class Fleet:
    """Routes frames between links and tries. Lives on one event loop. `restarted` hears names of new lives.

    `stopping` is set before links are ended on purpose: their loss is no news then. `model` is what workers must serve
    to be of use. `on_room` is called when a worker may have room for more; `claimed`, when one greets, for why it must
    not be used where it did, or "".
    """

    def __init__(
        self,
        workers: Sequence[Address],
        restarted: Callable[[str], None] = lambda name: None,
        *,
        model: str = "",
        clock: Callable[[], float] = time.monotonic,
        spans: Spans | None = None,
        breakers: Breakers | None = None,
        security: Security = LOCAL,
    ) -> None:
        self.stopping = False
        self.on_room: Callable[[], None] = lambda: None
        self.claimed: Callable[[WorkerLink, Welcome], str] = lambda link, welcome: ""
        self.restraint, self.objections, self.serving = Restraint(), Objections(), ServingPairs()
        self.refusals = Restraint()  # its subjects are reasons, of which there may be many: they silence no worker's
        self.called_off = False
        self.model, self._clock = model, clock
        self._has_pair, self._had_pair_s = False, -math.inf
        self._restarted = restarted
        self._spans = spans or Spans()
        self.breakers = breakers or Breakers()
        self.breakers.changed = self.on_change
        self.warmth = Warmth()
        self._started_s: dict[RequestId, float] = {}
        self.security = security
        self.links = [WorkerLink(address, self, security) for address in dict.fromkeys(workers)]
        self._keeping: dict[WorkerLink, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tries: dict[RequestId, Halves] = {}
        self._lingering: dict[RequestId, asyncio.TimerHandle] = {}
        self._asked: dict[tuple[WorkerLink, int], asyncio.Future[Answer]] = {}
        self._serials = itertools.count(1)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Keep all links alive until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._begin_links()
            self._group.create_task(self._ping())

    def _begin_links(self) -> None:
        for link in self.links:
            if self._group is not None and link not in self._keeping:
                self._keeping[link] = self._group.create_task(self._keep(link))

    def expect(self, workers: Sequence[Address]) -> None:
        """These are the workers from now on. One that is no longer named gets nothing new, and goes when it is done."""
        known = {link.address: link for link in self.links}
        expected = dict.fromkeys(workers)
        self.links += [WorkerLink(each, self, self.security) for each in expected if each not in known]
        for link in self.links:
            link.dismissed = link.address not in expected
        self._begin_links()
        self._let_go()
        self.on_change()

    def _let_go(self) -> None:
        for link in [each for each in self.links if each.dismissed and not (each.halves or each.reserved)]:
            self.links.remove(link)
            if task := self._keeping.pop(link, None):
                task.cancel()

    async def _keep(self, link: WorkerLink) -> None:
        """What ends one link, which can only be a bug of ours, ends neither the others nor this one for ever."""
        while True:
            try:
                await link.run()
            except Exception:
                _log.exception("the link to %s ended; it begins anew", link.name)
            await asyncio.sleep(_AGAIN_S)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            for link in list(self.links):
                link.ping()

    @property
    def present(self) -> list[WorkerLink]:
        return [link for link in self.links if link.welcome is not None]

    def usable(self) -> list[Pair]:
        """Pairs that are ready now, open circuit breakers or not."""
        return usable_pairs(self.links, self.model)

    def pairs(self) -> list[Pair]:
        """Pairs that clients may be sent to now: both halves, or neither."""
        return [pair for pair in self.usable() if self.breakers.admits(pair.lives)]

    def why_no_pair(self) -> str:
        """For the operator and for /readiness: why `pairs` is empty."""
        if self.usable():
            names = self.breakers.names_in(Phase.OPEN, Phase.HALF_OPEN)
            return f"circuit breakers are open: {', '.join(names)}"
        return why_no_pair(self.links, self.model, self.objections.told())

    def unused(self) -> tuple[Objection, ...]:
        """Workers that cannot be used now, whoever else can; bounded."""
        return tuple(Objection(link.name, cut(why)) for link, why in problems(self.links, self.model)[:MOST_WORKERS])

    def wait_for_change(self) -> Coroutine[Any, Any, Any]:
        """Until a worker came, went, told something new, or a pair was proved: from this call on, not only from when
        it is awaited. A change between the two that was missed left a router waiting for ever for what it had."""
        return self._changed.wait()

    def had_pair_lately(self) -> bool:
        """Whether some pair was usable a few seconds ago: then one may be again in a moment."""
        return self._has_pair or self._clock() - self._had_pair_s < _LATELY_S

    def start(self, submit: Submit, decode: WorkerLink, prefill: WorkerLink | None, *, kept: bool = False) -> Halves:
        """Begin a try; it must be given to `end`."""
        halves = Halves(submit.request, decode, prefill, kept=kept)
        self._tries[submit.request] = halves
        self._started_s[submit.request] = time.monotonic()
        halves.start(submit)
        return halves

    def end(self, halves: Halves, fact: TryFact) -> None:
        """Nobody reads what comes of this try any more. It is forgotten now, or when its hand-off has finished."""
        halves.feed(fact)
        if not halves.over and (len(self._lingering) >= _MOST_LINGERING or not halves.hands_off):
            halves.feed(CallOff(CLIENT_GONE))
        if halves.over:
            self._forget(halves)
            return
        too_long = CallOff(CLIENT_GONE)
        self._lingering[halves.request] = asyncio.get_running_loop().call_later(_LINGER_S, halves.feed, too_long)
        halves.on_over = lambda: self._forget(halves)

    def _forget(self, halves: Halves) -> None:
        if timer := self._lingering.pop(halves.request, None):
            timer.cancel()
        self._tries.pop(halves.request, None)
        since_s = self._started_s.pop(halves.request, None)
        if since_s is not None:
            self._spans.record(halves.request, ROOT, since_s)
        self._let_go()
        self.on_room()

    def feed_all(self, fact: TryFact) -> None:
        """Tell every try that runs."""
        for halves in list(self._tries.values()):
            halves.feed(fact)

    def call_off(self, failure: Failure) -> None:
        """End every try that runs, and whoever waits for one."""
        self.called_off = True
        self.feed_all(CallOff(failure))
        self.on_change()

    async def scrape(self) -> list[str]:
        """The metrics of every worker that answers within two seconds."""
        answers = await asyncio.gather(*(self._ask(link, Scrape) for link in self.present))
        return [answer.text for answer in answers if isinstance(answer, Scraped)]

    async def inspect(self) -> dict[WorkerLink, WorkerSnapshot]:
        """What every worker that answers within two seconds holds now."""
        present = self.present
        answers = await asyncio.gather(*(self._ask(link, Inspect) for link in present))
        seen = zip(present, answers, strict=True)
        return {link: answer.snapshot for link, answer in seen if isinstance(answer, Inspected)}

    async def look(self, link: WorkerLink) -> WorkerSnapshot | None:
        """What one worker holds now; None when it does not answer within two seconds."""
        answer = await self._ask(link, Inspect)
        return answer.snapshot if isinstance(answer, Inspected) else None

    async def flush(self, link: WorkerLink, within_s: float) -> bool:
        """Let a worker forget every cached prefix; whether, within this time, nobody read one of them any more."""
        self.warmth.forget()
        return await self._ask(link, Flush, within_s) is not None

    async def _ask(
        self, link: WorkerLink, question: type[Scrape | Inspect | Flush], within_s: float = _ANSWER_S
    ) -> Answer | None:
        """None when nothing came in time, and at once for a worker that would not know the question."""
        if misspoken(link):
            return None
        key = link, next(self._serials)
        self._asked[key] = asyncio.get_running_loop().create_future()
        link.send(question(key[1]))
        try:
            async with asyncio.timeout(within_s):
                return await self._asked[key]
        except TimeoutError:
            return None
        finally:
            del self._asked[key]

    # ------------------------------------------------------------ what links tell

    def why_not(self, link: WorkerLink, welcome: Welcome) -> str:
        """Pairs are formed by name: of two workers that have the same one, the first is used while it is connected."""
        if problem := self.claimed(link, welcome):
            return problem
        others = [each for each in self.present if each is not link and each.name == welcome.worker]
        return f"a worker {welcome.worker} is here already, at {show_address(others[0].address)}" if others else ""

    def on_frame(self, link: WorkerLink, frame: WorkerFrame) -> None:
        match frame:
            case Tokens() | PromptTold() | Failed() | HandedOff() | Accepted():
                if halves := self._tries.get(frame.request):
                    halves.take(link, frame)
                if not isinstance(frame, Tokens) or frame.finish:
                    self.on_room()
            case Scraped() | Inspected() | Flushed():
                self._answered(link, frame)

    def on_lost(self, link: WorkerLink) -> None:
        for halves in list(self._tries.values()):
            halves.lost(link)

    def on_silent(self, link: WorkerLink) -> None:
        """What has not begun to answer begins anew where somebody answers; with nobody else there it waits."""
        if any(link not in pair.workers for pair in self.pairs()):
            for halves in list(self._tries.values()):
                halves.silent(link)

    def on_given_up(self, link: WorkerLink) -> None:
        """Nobody waits any longer, whoever else is there: neither for a first word nor for the next one."""
        for halves in list(self._tries.values()):
            halves.give_up(link)

    def on_new_life(self, link: WorkerLink) -> None:
        self._restarted(link.name)

    def on_change(self) -> None:
        """Wakes who waits now; who comes later waits for the next change."""
        self.breakers.learn(self.links)
        troubles = {(link.name, name): why for link in self.links for name, why in link.troubles}
        self.objections.find_unfit("workers", troubles)
        had, self._has_pair = self._has_pair, self.serving.see(self.pairs())
        if had:
            self._had_pair_s = self._clock()
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_room()

    def _answered(self, link: WorkerLink, frame: Answer) -> None:
        future = self._asked.get((link, frame.serial))
        if future is not None and not future.done():
            future.set_result(frame)
