"""Whether this deployment has shown, end to end, that it can answer."""

from __future__ import annotations

import asyncio
import logging
import textwrap
import time
from contextlib import aclosing

from quiesce.errors import QuiesceError
from quiesce.protocol.dispatch import Sampling
from quiesce.protocol.messages import Failure
from quiesce.protocol.pairing import CallOff
from quiesce.router.breakers import Lives
from quiesce.router.failures import PROBE_OVER, GenerationFailed
from quiesce.router.fleet import Fleet
from quiesce.router.generation import Generation
from quiesce.router.order import Order
from quiesce.router.pairs import Pair
from quiesce.telemetry.logs import ids
from quiesce.text.model import TextModel

_PROBE_TEXT, _PROBE_TOKENS, _PROBE_S = "Ready?", 2, 60.0
_AGAIN_S = 1.0
_MOST_CAUSES, _LONGEST_CAUSE = 4, 300

_log = logging.getLogger(__name__)


class Readiness:
    """Probes every pair that appears with a short generation; what clients generate proves a pair as well.

    A pair whose circuit breaker asks for it is probed again: nothing else closes one that is open.
    """

    def __init__(self, fleet: Fleet, text: TextModel) -> None:
        self._fleet = fleet
        self._breakers = fleet.breakers
        self._order = _probe_order(text)
        self._proved: set[Lives] = set()
        self._failures: dict[Lives, str] = {}
        self._again_s: dict[Lives, float] = {}
        self._probes: dict[Lives, asyncio.Task[None]] = {}

    def proved(self, lives: Lives | None) -> None:
        """A real generation went through this pair, in this life of its workers."""
        if lives and lives not in self._proved:
            self._proved.add(lives)
            self._fleet.on_change()

    def why_not(self) -> str:
        """ "" when ready: some pair that clients may use now has been proved. Otherwise the reason."""
        pairs = self._fleet.pairs()
        if not pairs:
            return "; ".join((self._fleet.why_no_pair(), *self._causes()))
        if any(pair.lives in self._proved for pair in pairs):
            return ""
        return next(iter(self._failures.values()), "") or "the first generation has not come through yet"

    def _causes(self) -> list[str]:
        """What the last test generation of each pair that could be used failed of, bounded."""
        usable = (pair.lives for pair in self._fleet.usable())
        told = dict.fromkeys(self._failures[lives] for lives in usable if lives in self._failures)
        causes = [textwrap.shorten(each, _LONGEST_CAUSE).rstrip(".") for each in list(told)[:_MOST_CAUSES]]
        return [*causes, "the workers' logs say more"] if causes else []

    async def run(self) -> None:
        """Probe what is new and what is doubted, until cancelled."""
        try:
            while True:
                await self._turn()
        finally:
            for probe in self._probes.values():
                probe.cancel()
            await asyncio.gather(*self._probes.values(), return_exceptions=True)

    async def _turn(self) -> None:
        """Begin the probes that are due, and wait until something happens or the next one is due."""
        changed = asyncio.ensure_future(self._fleet.wait_for_change())
        try:
            pause_s = self._begin_probes()
            await asyncio.wait({changed, *self._probes.values()}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _begin_probes(self) -> float | None:
        """Side by side: one that says nothing for a minute keeps no other pair waiting. Seconds until the next one."""
        pairs, now_s = {pair.lives: pair for pair in self._fleet.usable()}, time.monotonic()
        self._forget_all_but(set(pairs))
        due = {lives: at_s for lives in pairs if (at_s := self._due_s(lives)) is not None}
        for lives in [lives for lives, at_s in due.items() if at_s <= now_s]:
            del due[lives]
            self._probes[lives] = asyncio.ensure_future(self._probe(pairs[lives]))
        return max(0.0, min(due.values()) - now_s) if due else None

    def _forget_all_but(self, usable: set[Lives]) -> None:
        self._probes = {lives: probe for lives, probe in self._probes.items() if not probe.done()}
        self._proved &= usable | self._lives_that_wait()
        self._failures = {lives: told for lives, told in self._failures.items() if lives in usable}
        self._again_s = {lives: at_s for lives, at_s in self._again_s.items() if lives in usable}

    def _due_s(self, lives: Lives) -> float | None:
        """When a pair should be probed; None: not at all, or it is being probed."""
        if lives in self._probes:
            return None
        wanted_s = self._breakers.probe_due_s(lives)
        if wanted_s is not None:
            return wanted_s
        return None if lives in self._proved else self._again_s.get(lives, 0.0)

    def _lives_that_wait(self) -> set[Lives]:
        """A pair that is not usable for the moment stays proved while both its workers live."""
        here = {link.welcome.incarnation for link in self._fleet.present if link.welcome}
        return {lives for lives in self._proved if here.issuperset(lives)}

    async def _probe(self, pair: Pair) -> None:
        lives, names = pair.lives, " and ".join(link.name for link in pair.workers)
        self._breakers.probe_began(lives)
        try:
            await self._generate(pair)
        except QuiesceError as error:
            self._failed(lives, f"a test generation through {names} failed: {error}", _failure_of(error))
        except Exception:  # a bug of ours must not end probing for ever
            _log.exception("a test generation failed in the router")
            self._failed(lives, f"a test generation through {names} failed in the router", None)
        else:
            self._failures.pop(lives, None)
            self._breakers.probe_passed(lives)
            self.proved(lives)
            _log.info("a test generation came through", extra=ids(worker_name=names))

    def _failed(self, lives: Lives, reason: str, failure: Failure | None) -> None:
        """Told once, not at every further attempt."""
        self._again_s[lives] = time.monotonic() + _AGAIN_S
        self._breakers.probe_failed(lives, failure)
        if reason != self._failures.get(lives):
            _log.warning("not ready", extra=ids(reason=reason))
            self._failures[lives] = reason
            self._fleet.on_change()

    async def _generate(self, pair: Pair) -> None:
        generation = Generation(self._fleet, self._order, only=pair)
        generation.ending = CallOff(PROBE_OVER)
        async with aclosing(generation.tokens()) as frames:
            async for _tokens in frames:
                pass


def _failure_of(error: QuiesceError) -> Failure | None:
    return error.failure if isinstance(error, GenerationFailed) else None


def _probe_order(text: TextModel) -> Order:
    token_ids = text.encode(_PROBE_TEXT)
    return Order(
        token_ids=token_ids.astype("<u4").tobytes(),
        prompt_tokens=len(token_ids),
        sampling=Sampling(temperature=0.0, seed=0),
        max_tokens=_PROBE_TOKENS,
        ignore_eos=True,
        timeout_s=_PROBE_S,
    )
