"""What will be asked, drawn from the seed: pure, so that a dry run shows it and a replay repeats it.

Arms differ in one thing only. In `concurrent` and `abort` the same pairs of donor and victim are asked, assigned to
the arms at random; in `abort` the donor leaves. `sequential` asks victims alone, twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from quiesce.audit import prompts
from quiesce.audit.lengths import MOST_CHARS, Length, filler_tokens, lengths, that_fit
from quiesce.audit.marker import Marker, mint, run_for
from quiesce.audit.options import FEWEST_VICTIMS, Options
from quiesce.audit.target import Target
from quiesce.errors import UsageError

MOST_FALSE_POSITIVES = 1e-4
"""The probability, over the whole audit, that a clean deployment is accused by a run of a marker."""

LETTERS_PER_TOKEN = 8
"""More letters than an answer's token has on average, for the bound that is planned with."""

PAIRS_PER_ROUND = 8

TIMES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.4)
"""When a donor leaves, in its usual time to the first token: before, during and just after the hand-off."""

EVENTS = (1, 3)
"""Or after so many events of its answer have come."""

OFFSETS = (0.0, 0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""When its victim comes after that, in the same measure."""


class Arm(StrEnum):
    """Under which conditions a question is asked."""

    ALONE = "alone"
    SEQUENTIAL = "sequential"
    CONCURRENT = "concurrent"
    ABORT = "abort"
    LONG = "long"
    TENANTS = "tenants"


class Manner(StrEnum):
    """How a donor's connection ends: in order, or reset (SO_LINGER 0)."""

    CLOSE = "close"
    RESET = "reset"


class Leave(msgspec.Struct, frozen=True):
    """After `events` events if there are any, else after `ttfts` times the usual time to the first token."""

    manner: Manner
    ttfts: float = 0.0
    events: int = 0

    @property
    def expected_ttfts(self) -> float:
        """When it will be, as far as can be known before."""
        return 1.0 if self.events else self.ttfts


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `own` are the markers that its answer may show; `of` is the ask whose prompt it repeats,
    `after` the donor in whose wake a victim comes. After `content` come `filler_words`, which are text only in `text`.
    """

    id: int
    role: str
    arm: Arm
    content: str
    max_tokens: int
    own: tuple[int, ...]
    of: int | None = None
    after: int | None = None
    stratum: int = 0
    second_key: bool = False
    fresh_connection: bool = False
    leave: Leave | None = None
    filler_words: int = 0

    @property
    def text(self) -> str:
        """The whole prompt; made anew each time, for it may be long."""
        return self.content + prompts.common(self.filler_words)

    @property
    def chars(self) -> int:
        """Of the whole prompt."""
        return len(self.content) + prompts.common_chars(self.filler_words)


class Pair(msgspec.Struct, frozen=True):
    """The victim comes `offset_ttfts` after the donor leaves, or would leave."""

    donor: Ask
    victim: Ask
    leave: Leave
    offset_ttfts: float


class Round(msgspec.Struct, frozen=True):
    """A burst of pairs; load stops before and after it."""

    arm: Arm
    pairs: tuple[Pair, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """In the order in which it is carried out. `run` is how many syllables of a marker make a hit."""

    options: Options
    markers: tuple[Marker, ...]
    run: int
    victims: int
    before: tuple[Ask, ...]
    rounds: tuple[Round, ...]
    long: tuple[Ask, ...]
    after: tuple[Ask, ...]
    tenants: tuple[Ask, ...]
    tokens: int
    untested: tuple[str, ...]

    @property
    def asks(self) -> Iterator[Ask]:
        yield from self.before
        for each in self.rounds:
            for pair in each.pairs:
                yield from (pair.donor, pair.victim)
        for stage in (self.long, self.after, self.tenants):
            yield from stage

    @property
    def requests(self) -> int:
        return sum(1 for _ in self.asks)


def make_plan(options: Options, target: Target) -> Plan:
    """As many victims as wanted, or as budget and requests allow. Raises UsageError when that is too few.

    Long prompts get what the smallest number of victims leaves of the budget.
    """
    drafts = Drafting(options, target)
    drafts.long = that_fit(drafts.wanted, options.budget_tokens - drafts.plan(FEWEST_VICTIMS).tokens)
    plan = drafts.plan(options.victims)
    victims = options.victims
    while not _fits(plan, options) and victims > FEWEST_VICTIMS:
        victims = max(FEWEST_VICTIMS, victims * 3 // 4)
        plan = drafts.plan(victims)
    if not _fits(plan, options):
        plan = drafts.plan(victims, whole=False)
    if not _fits(plan, options):
        raise UsageError(
            f"the smallest audit needs {plan.requests} requests and {plan.tokens} tokens.",
            remedy="Raise --max-requests and --budget-tokens, or lower --donor-tokens and --answer-tokens.",
        )
    return plan


def _fits(plan: Plan, options: Options) -> bool:
    return plan.requests <= options.max_requests and plan.tokens <= options.budget_tokens


def cost_tokens(ask: Ask, target: Target) -> int:
    """At most, as far as is known: an answer's full length, a refused prompt as if it were computed."""
    if ask.arm is Arm.LONG:
        return filler_tokens(ask.chars, target) + ask.max_tokens
    return math.ceil(ask.chars * target.tokens_per_char) + ask.max_tokens


class Drafting:
    """Draws plans of several sizes; each begins with the seed anew, so a size has one plan only.

    `wanted` are the long prompts that would be asked, `long` those that are.
    """

    def __init__(self, options: Options, target: Target) -> None:
        self._options = options
        self._target = target
        self.wanted = lengths(options, target)
        self.long: list[Length] = []
        self._start()

    def _start(self) -> None:
        self._draw = random.Random(self._options.seed)  # noqa: S311 - it must be repeatable
        self._markers: list[Marker] = []
        self._next = 0

    def plan(self, victims: int, *, whole: bool = True) -> Plan:
        """Without `whole`, long prompts and tenants are left out."""
        self._start()
        victims = PAIRS_PER_ROUND * max(1, round(victims / PAIRS_PER_ROUND))
        rounds = self._rounds(victims)
        first, later = self._solos(rounds)
        long = tuple(map(self._filler, self.long)) if whole else ()
        tenants = self._tenants() if whole and self._options.two_keys else ()
        plan = Plan(
            options=self._options,
            markers=(),
            run=0,
            victims=victims,
            before=(*self._sequential(victims // 2), *first),
            rounds=rounds,
            long=long,
            after=later,
            tenants=tenants,
            tokens=0,
            untested=tuple(self._untested(victims, whole)),
        )
        tokens = sum(cost_tokens(ask, self._target) for ask in plan.asks)
        places = LETTERS_PER_TOKEN * sum(ask.max_tokens for ask in plan.asks)
        run = run_for(places, len(self._markers), MOST_FALSE_POSITIVES)
        return msgspec.structs.replace(plan, markers=tuple(self._markers), tokens=tokens, run=run)

    # ------------------------------------------------------------ pieces

    def _mint(self) -> Marker:
        self._markers.append(mint(len(self._markers), self._draw))
        return self._markers[-1]

    def _ask(self, role: str, arm: Arm, content: str, max_tokens: int, own: Sequence[Marker], stratum: int = 0) -> Ask:
        self._next += 1
        ids = tuple(marker.id for marker in own)
        return Ask(
            id=self._next, role=role, arm=arm, content=content, max_tokens=max_tokens, own=ids, stratum=stratum
        )  # fmt: skip

    def _victim(self, arm: Arm, stratum: int, prefix: str = "") -> Ask:
        marker = self._mint()
        chars = self._target.chars_for(self._options.victim_tokens)
        content = prompts.victim(marker, stratum, chars, self._draw, prefix)
        ask = self._ask("victim", arm, content, self._options.answer_tokens, [marker], stratum)
        return msgspec.structs.replace(ask, fresh_connection=self._draw.random() < 0.5)

    def _again(self, ask: Ask, arm: Arm) -> Ask:
        """The same question, alone."""
        self._next += 1
        return msgspec.structs.replace(
            ask, id=self._next, role="solo", arm=arm, of=ask.id, after=None, fresh_connection=False
        )

    def _pair(self, arm: Arm, stratum: int, leave: Leave) -> Pair:
        options = self._options
        prefix = prompts.shared_prefix(self._target.chars_for(options.victim_tokens // 2 * self._draw.randrange(2)))
        marker = self._mint()
        content = prompts.donor(marker, self._target.chars_for(options.donor_tokens), self._draw, prefix)
        donor = self._ask("donor", arm, content, options.answer_tokens, [marker], stratum)
        if arm is Arm.ABORT:
            donor = msgspec.structs.replace(donor, leave=leave)
        # Only a connection of its own can be reset without ending others.
        fresh = self._draw.random() < 0.5 or leave.manner is Manner.RESET
        donor = msgspec.structs.replace(donor, fresh_connection=fresh)
        follower = msgspec.structs.replace(self._victim(arm, stratum, prefix), after=donor.id)
        return Pair(donor, follower, leave, self._draw.choice(OFFSETS))

    # ------------------------------------------------------------ stages

    def _sequential(self, count: int) -> tuple[Ask, ...]:
        asks: list[Ask] = []
        for number in range(count):
            victim = self._victim(Arm.SEQUENTIAL, number % len(prompts.QUESTIONS))
            asks += [victim, self._again(victim, Arm.SEQUENTIAL)]
        return tuple(asks)

    def _rounds(self, victims: int) -> tuple[Round, ...]:
        """Arms take turns in random order, so that whatever drifts, drifts for both."""
        arms = [Arm.CONCURRENT, Arm.ABORT] if self._options.allow_aborts else [Arm.CONCURRENT]
        leaves = {arm: self._leaves(victims) for arm in arms}
        rounds: list[Round] = []
        for first in range(0, victims, PAIRS_PER_ROUND):
            self._draw.shuffle(arms)
            rounds += [Round(arm, self._burst(arm, leaves[arm][first : first + PAIRS_PER_ROUND])) for arm in arms]
        return tuple(rounds)

    def _burst(self, arm: Arm, leaves: Sequence[Leave]) -> tuple[Pair, ...]:
        """Each question once: strata are equally large in all arms."""
        questions = list(range(len(prompts.QUESTIONS)))
        self._draw.shuffle(questions)
        return tuple(self._pair(arm, stratum, leave) for stratum, leave in zip(questions, leaves, strict=True))

    def _leaves(self, count: int) -> list[Leave]:
        """Every moment once, then every moment in the other manner, and so on, each time in random order."""
        moments = [*((each, 0) for each in TIMES), *((0.0, each) for each in EVENTS)]
        manners = [self._draw.choice(list(Manner)) for _ in moments]
        leaves: list[Leave] = []
        while len(leaves) < count:
            manners = [Manner.CLOSE if manner is Manner.RESET else Manner.RESET for manner in manners]
            all_ = [Leave(manner, *moment) for manner, moment in zip(manners, moments, strict=True)]
            self._draw.shuffle(all_)
            leaves += all_
        return leaves[:count]

    def _solos(self, rounds: Sequence[Round]) -> tuple[tuple[Ask, ...], tuple[Ask, ...]]:
        """Each victim alone: one half before (their prompts may be cached then), one after (new pages for them)."""
        victims = [pair.victim for each in rounds for pair in each.pairs]
        early = {victim.id for victim in self._draw.sample(victims, len(victims) // 2)}
        first = tuple(self._again(victim, Arm.ALONE) for victim in victims if victim.id in early)
        return first, tuple(self._again(victim, Arm.ALONE) for victim in victims if victim.id not in early)

    def _filler(self, length: Length) -> Ask:
        marker = self._mint()
        ask = self._ask(length.role, Arm.LONG, prompts.letter(marker), self._options.answer_tokens, [marker])
        return msgspec.structs.replace(ask, filler_words=length.words)

    def _tenants(self) -> tuple[Ask, ...]:
        """One tenant warms a prefix, twice; the other asks it, and one that nobody has said, in random order."""
        asks: list[Ask] = []
        for _ in range(self._options.tenant_probes):
            known, new = self._prefix(), self._prefix()
            asks += [self._probe("first warms", *known), self._probe("first again", *known)]
            others = [self._probe("second, warmed by first", *known), self._probe("second, new", *new)]
            self._draw.shuffle(others)
            asks += [msgspec.structs.replace(ask, second_key=True) for ask in others]
        return tuple(asks)

    def _prefix(self) -> tuple[Marker, str]:
        marker = self._mint()
        return marker, prompts.warm_up(marker, self._target.chars_for(self._options.donor_tokens))

    def _probe(self, role: str, marker: Marker, content: str) -> Ask:
        return self._ask(role, Arm.TENANTS, content, 1, [marker])

    # ------------------------------------------------------------ what it leaves out

    def _untested(self, victims: int, whole: bool) -> Iterator[str]:
        options = self._options
        if not options.allow_aborts:
            yield "what happens when clients leave: the audit was passive (--allow-aborts)"
        if not options.two_keys:
            yield "whether tenants share prefixes: there was one key (--other-key-file)"
        if not whole:
            yield "long prompts and tenants: the budget did not allow for them"
        elif not self.wanted:
            yield "prompts over the limits: the endpoint does not say its context length (--context-tokens)"
        elif not (options.pool_tokens or self._target.pool_tokens):
            yield "prompts within the context but over the KV pool: the pool's size is not known (--pool-tokens)"
        yield from (_left_out(each) for each in self.wanted if whole and each not in self.long)
        if victims < options.victims:
            yield f"{options.victims - victims} of {options.victims} victims in each arm: the budget did not allow them"
        yield "other models, images, tools, structured output, and sampling above temperature 0"


def _left_out(length: Length) -> str:
    long = length.chars > MOST_CHARS
    why = f"more than {MOST_CHARS} characters" if long else "the budget did not allow it (--budget-tokens)"
    return f"a prompt {length.role}, of about {length.tokens} tokens: {why}"
