"""What was seen. An `Answer` has text and stays in memory; an `Observation` has none and may be reported.

An answer may be, in whole or in part, somebody else's. So nothing that the endpoint wrote goes further than here: of
text its length and a hash under a key that is thrown away, of names only those that we know ourselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import StrEnum

import msgspec

from quiesce.audit.marker import Hit, Search, letters_of
from quiesce.audit.plan import Ask, Manner

FINISHES = frozenset({"stop", "length", "content_filter", "tool_calls", "function_call"})
CODES = frozenset(
    {
        *("context_length_exceeded", "rate_limit_exceeded", "invalid_api_key", "insufficient_quota", "model_not_found"),
        *("invalid_value", "queue_full", "deadline_exceeded", "pair_unavailable", "context_changed"),
        *("coverage_mismatch", "metadata_mismatch", "digest_mismatch", "internal_error", "client_disconnected"),
        *("server_error", "BadRequestError", "invalid_request_error"),
    }
)
OTHER = "other"

MOST_TOKENS = 1 << 31
"""Of anything that an endpoint counts; more is nonsense, and so is less than none."""


class Outcome(StrEnum):
    """How a request ended, as its client sees it."""

    FINISHED = "finished"
    REFUSED = "refused"
    ERROR = "error"
    INCOMPLETE = "incomplete"
    LEFT = "left"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    SKIPPED = "skipped"


_LATER = frozenset({408, 425, 429})


def is_refusal(outcome: Outcome, status: int) -> bool:
    """Whether a request was refused for what it asks. One that nobody had time for says nothing of what it asked."""
    return outcome is Outcome.REFUSED and 400 <= status < 500 and status not in _LATER


class Usage(msgspec.Struct, frozen=True):
    """What an answer says of itself; None where it says nothing. Numbers that cannot be are -1 or MOST_TOKENS."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def can_be(self) -> bool:
        told = (self.prompt_tokens, self.completion_tokens, self.total_tokens, self.cached_tokens)
        return all(count is None or 0 <= count < MOST_TOKENS for count in told)


class Answer(msgspec.Struct, kw_only=True):
    """One answer as it came. Seconds are counted from when its request was sent; `text` is an error's body, too."""

    outcome: Outcome = Outcome.INCOMPLETE
    status: int = 0
    text: str = ""
    finish: str = ""
    code: str = ""
    usage: Usage = Usage()
    began_s: float = 0.0
    ttft_s: float | None = None
    total_s: float = 0.0
    retries: int = 0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One answer without its text. `began_s` is since the audit's start; `letters` were searched for markers."""

    ask: int
    of: int | None
    after: int | None
    role: str
    arm: str
    stratum: int
    fresh_connection: bool
    second_key: bool
    max_tokens: int
    prompt_chars: int
    outcome: Outcome
    status: int
    finish: str
    code: str
    usage: Usage
    text_hash: str
    text_chars: int
    letters: int
    hits: tuple[Hit, ...]
    began_s: float
    ttft_s: float | None
    total_s: float
    retries: int
    manner: Manner | None
    leave_ttfts: float | None
    leave_events: int | None
    counted_tokens: int | None = None

    @property
    def is_answer(self) -> bool:
        return self.outcome is Outcome.FINISHED

    @property
    def is_decided(self) -> bool:
        """Whether its end tells what the endpoint makes of it; not so when it was busy, slow or broke off."""
        return self.is_answer or self.outcome is Outcome.ERROR or is_refusal(self.outcome, self.status)


class Observer:
    """Turns answers into observations. `hash_key` makes hashes comparable within one audit, and useless outside it."""

    def __init__(self, search: Search, hash_key: bytes) -> None:
        self._search = search
        self._key = hash_key

    def observe(self, ask: Ask, answer: Answer, counted_tokens: int | None = None) -> Observation:
        """`counted_tokens` is what the endpoint's tokenizer made of the prompt, if it was asked."""
        return Observation(
            ask=ask.id,
            of=ask.of,
            after=ask.after,
            role=ask.role,
            arm=ask.arm.value,
            stratum=ask.stratum,
            fresh_connection=ask.fresh_connection,
            second_key=ask.second_key,
            max_tokens=ask.max_tokens,
            prompt_chars=ask.chars,
            outcome=answer.outcome,
            status=answer.status,
            finish=known(answer.finish, FINISHES),
            code=known(answer.code, CODES),
            usage=answer.usage,
            text_hash=self._hash(answer.text),
            text_chars=len(answer.text),
            letters=len(letters_of(answer.text)),
            hits=self._search.find(answer.text, ask.own),
            began_s=round(answer.began_s, 4),
            ttft_s=None if answer.ttft_s is None else round(answer.ttft_s, 5),
            total_s=round(answer.total_s, 5),
            retries=answer.retries,
            manner=ask.leave.manner if ask.leave else None,
            leave_ttfts=ask.leave.ttfts if ask.leave and not ask.leave.events else None,
            leave_events=ask.leave.events or None if ask.leave else None,
            counted_tokens=counted_tokens,
        )

    def _hash(self, text: str) -> str:
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).hexdigest()


def known(name: str, names: frozenset[str]) -> str:
    """`name` if it is one of ours, "" for nothing, else `other`."""
    return name if not name or name in names else OTHER


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A victim's answer beside that of its solo. `same_chars` is how far they agree."""

    victim: int
    solo: int
    arm: str
    stratum: int
    is_equal: bool
    same_chars: int
    chars: int


def same_chars(first: str, second: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


class Observed(msgspec.Struct, frozen=True):
    """All that a verdict is made from. `unasked` requests of the plan were not begun: it was stopped early."""

    observations: tuple[Observation, ...]
    comparisons: tuple[Comparison, ...]
    spent_tokens: int
    took_s: float
    unasked: int = 0


Progress = Callable[[str, int, int], None]
"""Told the stage, how many requests are done, and how many there are."""
