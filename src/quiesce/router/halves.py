"""Carries out `protocol.pairing` for one try: frames become facts, effects become frames and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quiesce.ids import RequestId
from quiesce.protocol import pairing
from quiesce.protocol.dispatch import Accepted, Cancel, Failed, HandedOff, PromptTold, Submit, Tokens, WorkerFrame
from quiesce.protocol.logprobs import TokenLogprobs
from quiesce.protocol.messages import Failure, Fault
from quiesce.protocol.pairing import GaveUp, Side
from quiesce.router.link import WorkerLink

Event = Tokens | GaveUp

MOST_UNREAD_TOKENS = 8192
"""What may wait for a client that reads more slowly than decode generates; alternatives to a token count as one each.

Beyond it the request is ended: decode cannot be asked to pause, and holding what it says costs the router's memory.
"""

UNREAD = Failure("client_too_slow", "The client does not read its answer as fast as it comes.", Fault.CLIENT, 408)


class Halves:
    """Two halves of a request; an aggregated worker has no `prefill`, as if that half were done.

    `next` gives what decode generates, and at most one GaveUp, which is the last. `on_over` is called once no more can
    come of it. `prompt_told` are the log probabilities of the prompt's tokens, if they were asked for: all of them
    before `next` gives anything. `kept`: as `Order` has it.
    """

    def __init__(
        self, request: RequestId, decode: WorkerLink, prefill: WorkerLink | None, *, kept: bool = False
    ) -> None:
        self.request = request
        self.on_over: Callable[[], None] = lambda: None
        self.prompt_told: list[TokenLogprobs] = []
        self._prompt_tokens_to_tell = 0
        self._early: list[Tokens] = []
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._unread_tokens = 0
        self._links = {Side.DECODE: decode} if prefill is None else {Side.PREFILL: prefill, Side.DECODE: decode}
        self._state = pairing.start(kept=kept) if prefill else pairing.Try(prefill=pairing.Half.DONE, kept=kept)

    @property
    def over(self) -> bool:
        return self._state.over

    @property
    def hands_off(self) -> bool:
        """Whether there is a hand-off at all."""
        return Side.PREFILL in self._links

    async def next(self) -> Event:
        event = await self._events.get()
        if isinstance(event, Tokens):
            self._unread_tokens -= _weight(event)
        return event

    def start(self, submit: Submit) -> None:
        """Send both halves at once."""
        if submit.tells_prompt:
            self._prompt_tokens_to_tell = len(submit.token_ids) // 4 - 1  # nothing stands before the first one
        for link in self._links.values():
            link.halves += 1
            link.send(submit)
        if Side.PREFILL in self._links:
            self._links[Side.DECODE].awaited[self._links[Side.PREFILL]] += 1

    def take(self, link: WorkerLink, frame: WorkerFrame) -> None:
        """A frame about this request. One that is not the sender's to say changes nothing."""
        side = self._side(link)
        match frame:
            case Accepted() if side:
                self.feed(pairing.HalfAccepted(side))
            case Tokens() if side is Side.DECODE:
                self._take_tokens(frame)
            case PromptTold() if side is (Side.PREFILL if self.hands_off else Side.DECODE):
                self._take_told(frame)
            case HandedOff() if side is Side.PREFILL:
                self.feed(pairing.HandOffDone())
            case Failed() if side:
                self.feed(pairing.HalfFailed(side, frame.failure))

    def lost(self, link: WorkerLink) -> None:
        """The stream to one half's worker is over."""
        if side := self._side(link):
            message = f"The {side.value} worker that computed this request is gone."
            self.feed(pairing.HalfFailed(side, Failure("worker_lost", message, Fault(side.value), 502)))

    def silent(self, link: WorkerLink) -> None:
        """One half's worker answers nobody: before the commit it is given up, afterwards its tokens may still come."""
        if not pairing.is_committed(self._state):
            self.give_up(link)

    def give_up(self, link: WorkerLink) -> None:
        """Wait no longer for a half whose worker answers nobody. Should that wake up, it hears that it is cancelled."""
        side = self._side(link)
        if side in self._running():
            message = f"The {side.value} worker of this request does not answer."
            failure = Failure("worker_silent", message, Fault(side.value), 504)
            link.send(Cancel(self.request, failure))
            self.feed(pairing.HalfFailed(side, failure))

    def feed(self, fact: pairing.TryFact) -> None:
        """One step of the machine."""
        before, was_over = self._running(), self.over
        self._state, effects = pairing.step(self._state, fact)
        for side in before - self._running():
            self._links[side].halves -= 1
            if side is Side.PREFILL:
                self._links[Side.DECODE].awaited[self._links[side]] -= 1
        for effect in effects:
            match effect:
                case pairing.CancelHalf(side, failure):
                    self._links[side].send(Cancel(self.request, failure))
                case GaveUp():
                    self._events.put_nowait(effect)
        if self.over and not was_over:
            self.on_over()

    def _take_told(self, frame: PromptTold) -> None:
        """What comes from two workers comes in any order: decode's words wait for all that prefill has to tell.

        The machine hears of them then, so that prefill's failure still ends a try that lacks something of it.
        """
        fits = len(frame.logprobs) <= self._prompt_tokens_to_tell and frame.start == len(self.prompt_told) + 1
        if self.over or not fits:
            return
        self.prompt_told += frame.logprobs
        self._prompt_tokens_to_tell -= len(frame.logprobs)
        if not self._prompt_tokens_to_tell:
            early, self._early = self._early, []
            for tokens in early:
                self._take_tokens(tokens)

    def _take_tokens(self, frame: Tokens) -> None:
        if self._prompt_tokens_to_tell and not self.over:
            self._early.append(frame)
            return
        if not self.over:
            self._events.put_nowait(frame)
            self._unread_tokens += _weight(frame)
        self.feed(pairing.TokensCame(last=bool(frame.finish)))
        if self._unread_tokens > MOST_UNREAD_TOKENS:
            self.feed(pairing.CallOff(UNREAD))

    def _running(self) -> set[Side]:
        return {side for side in self._links if pairing.half(self._state, side) not in pairing.ENDED}

    def _side(self, link: WorkerLink) -> Side | None:
        return next((side for side, mine in self._links.items() if mine is link), None)


def _weight(tokens: Tokens) -> int:
    return len(tokens.token_ids) + sum(len(told.top_ids) for told in tokens.logprobs)
