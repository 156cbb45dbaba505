"""One checker per property of PROTOCOL section 7, and a few more. Each looks at what really happens: at pages and bytes
of the simulated memory, at what clients are told; not at what the machines believe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from quiesce.protocol.admission import Limits

Cell = tuple[int, int]
"""What lies in a page: the tag it was stamped with, and the label of the text whose context it is."""


class Violation(Exception):
    """A property does not hold. `about` names the requests it is about."""

    def __init__(self, name: str, detail: str, about: Iterable[int] = ()) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail
        self.about = tuple(about)


class Checker:
    """`name` is the property. `looked` counts how often it could have failed. A `muted` one only looks."""

    name = ""

    def __init__(self) -> None:
        self.looked = 0
        self.muted = False

    def fail(self, detail: str, *about: int) -> None:
        if not self.muted:
            raise Violation(self.name, detail, about)


class NoWildWrite(Checker):
    """A page that is written belongs to the attempt that writes it, and nobody reads it."""

    name = "no_wild_write"

    def landed(self, attempt: int, owner: int, readers: int, where: str, about: int) -> None:
        """`owner` is the attempt that may have its page written (0: nobody)."""
        self.looked += 1
        if owner != attempt or readers:
            now = f"attempt {owner} has it" if owner else "its attempt is over"
            read = f" and {readers} read it" if readers else ""
            self.fail(f"what attempt {attempt} moves lands in {where}, but {now}{read}", about)

    def released(self, attempt: int, in_flight: int, where: str, about: int) -> None:
        """Pages are given back while writes to them are under way."""
        self.looked += 1
        if in_flight:
            self.fail(f"{where} gives back the pages of attempt {attempt} while {in_flight} transfers may land", about)


class NoAlias(Checker):
    """A page that is leased has no other writer and no reader."""

    name = "no_alias"

    def leased(
        self, attempt: int, pages: Sequence[int], owners: Sequence[int], readers: Sequence[int], where: str
    ) -> None:
        self.looked += 1
        for page in pages:
            if owners[page] or readers[page]:
                self.fail(f"page {page} of {where} is leased to attempt {attempt} and to {owners[page] or 'readers'}")


class ReadOwn(Checker):
    """Decode reads, in every step, pages that hold its own request's context: tag and text."""

    name = "read_own"

    def read(self, found: object, expected: object, where: str, about: int) -> None:
        self.looked += 1
        if found != expected:
            self.fail(f"{where} reads pages that hold {found}, its own are {expected} (tag, text)", about)


class NoEarlyAck(Checker):
    """Who acks, or says DONE, has nothing in flight for that attempt; in pull, who says that it reads no more."""

    name = "no_early_ack"

    def said(self, what: str, in_flight: int, where: str, about: int) -> None:
        self.looked += 1
        if in_flight:
            self.fail(f"{where} says {what} while {in_flight} of its transfers may land", about)


class ArmedFirst(Checker):
    """Rule 1. Decode says of no attempt that it failed before its hold is armed, and launches nothing of it after that;
    prefill offers no window before it is open.
    """

    name = "armed_first"

    def aborted(self, what: str, attempt: int, held: bool, where: str, about: int) -> None:
        self.looked += 1
        if not held:
            self.fail(f"{where} sends {what} for attempt {attempt}, whose hold is not armed", about)

    def launched(self, attempt: int, held: bool, where: str, about: int) -> None:
        self.looked += 1
        if held:
            self.fail(f"{where} launches a read of attempt {attempt}, which is held", about)

    def offered(self, open_: bool, where: str, about: int) -> None:
        self.looked += 1
        if not open_:
            self.fail(f"{where} offers a window that is not open", about)


class NoWildRead(Checker):
    """A source page that a launched write may still read is what it was at the launch."""

    name = "no_wild_read"

    def read(self, found: int, expected: int, where: str, about: int) -> None:
        self.looked += 1
        if found != expected:
            self.fail(f"what moves pages reads {where}, which holds text {found} now, not {expected}", about)

    def released(self, reading: int, where: str, about: int) -> None:
        self.looked += 1
        if reading:
            self.fail(f"{where} frees source pages that {reading} transfers may still read", about)


class NoLeak(Checker):
    """When all is quiet, nothing is held, leased or outstanding, except quarantine that awaits a named proof."""

    name = "no_leak"

    def quiet(self, wrong: Iterable[str]) -> None:
        self.looked += 1
        for each in wrong:
            self.fail(each.removeprefix("no_leak: "))

    def spared(self, pages: int, where: str) -> None:
        """Staged: what awaits a proof is landing pages alone."""
        self.looked += 1
        if pages:
            self.fail(f"{pages} pages of {where} await a proof, and nobody can write to them")


class Once(Checker):
    """Each lease, and each source, is released once."""

    name = "once"

    def __init__(self) -> None:
        super().__init__()
        self._released: set[tuple[str, object, int]] = set()

    def released(self, life: str, what: object, rank: int) -> None:
        self.looked += 1
        if (life, what, rank) in self._released:
            self.fail(f"{life} releases {what} twice (rank {rank})")
        self._released.add((life, what, rank))


class NoStub(Checker):
    """A request that a door rejected has created no state there."""

    name = "no_stub"

    def rejected(self, known: bool, where: str, about: int) -> None:
        self.looked += 1
        if known:
            self.fail(f"{where} rejected a request that it has state of", about)


class NoPoison(Checker):
    """What enters a prefix tree, and what is shared from it, holds the text that it is found by."""

    name = "no_poison"

    def shared(self, found: Sequence[object], expected: Sequence[object], where: str, about: int) -> None:
        self.looked += 1
        if list(found) != list(expected):
            self.fail(f"cached pages of {where} hold {found}, and are found by {expected}", about)

    def cached(self, committed: bool, where: str, about: int) -> None:
        self.looked += 1
        if not committed:
            self.fail(f"{where} caches pages of what has not ended well", about)


class EndsOnce(Checker):
    """Every request ends, and its client is told so exactly once."""

    name = "ends_once"

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[int, str] = {}

    def ended(self, number: int, how: str) -> None:
        self.looked += 1
        if number in self.ends:
            self.fail(f"request {number} ended as {self.ends[number]!r} and again as {how!r}", number)
        self.ends[number] = how

    def all_ended(self, begun: Iterable[int]) -> None:
        self.looked += 1
        missing = [number for number in begun if number not in self.ends]
        if missing:
            self.fail(f"requests that never ended: {' '.join(map(str, missing[:8]))}", *missing[:8])


class Admission(Checker):
    """No door lets in what does not fit, no worker has more than it may have."""

    name = "admission"

    def let_in(self, prompt: int, most: int, limits: Limits, where: str, about: int) -> None:
        self.looked += 1
        if prompt + most > min(limits.context_length, limits.pool_tokens):
            self.fail(f"{where} lets {prompt} + {most} tokens in, and has room for {limits.most_tokens}", about)

    def within(self, count: int, most: int, what: str, where: str) -> None:
        self.looked += 1
        if count > most:
            self.fail(f"{where} has {count} {what}, and may have {most}")


class Fairness(Checker):
    """Nobody who waits is passed for ever: bounded by what start-time fair queueing promises.

    While a tenant waits, no other gets more than what the first was ahead of it, and two requests. What answers took
    more or less than was charged is settled as it becomes known, so it counts too.
    """

    name = "fairness"

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[int, defaultdict[int, float]] = {}
        self._allowed: dict[int, float] = {}

    def waits(self, tenant: int, debt: float, largest: float) -> None:
        """`debt` is how far ahead of the others a tenant is when it begins to wait; in tokens."""
        if tenant not in self._passed:
            self._passed[tenant] = defaultdict(float)
            self._allowed[tenant] = debt + 2 * largest

    def settled(self, tenant: int, tokens: float) -> None:
        """A tenant's answer took so many tokens more than it was charged."""
        for passed in self._passed.values():
            passed[tenant] += tokens
        if tenant in self._allowed:
            self._allowed[tenant] += max(0.0, tokens)

    def gone(self, tenant: int) -> None:
        self._passed.pop(tenant, None)

    def placed(self, tenant: int, tokens: float) -> None:
        self.looked += 1
        self._passed.pop(tenant, None)
        for waiting, passed in self._passed.items():
            passed[tenant] += tokens
            if passed[tenant] > self._allowed[waiting] + tokens:
                self.fail(f"tenant {tenant} got {passed[tenant]:.0f} tokens while tenant {waiting} waited")


class Quota(Checker):
    """No tenant gets more in any minute than a full bucket and what flows into it meanwhile."""

    name = "quota"

    def __init__(self) -> None:
        super().__init__()
        self._taken_s: dict[int, list[float]] = {}

    def taken(self, tenant: int, now_s: float, per_minute: int) -> None:
        self.looked += 1
        taken = self._taken_s.setdefault(tenant, [])
        taken.append(now_s)
        while taken[0] < now_s - 60.0:
            taken.pop(0)
        if len(taken) > 2 * per_minute + 1:
            self.fail(f"tenant {tenant} took {len(taken)} requests within a minute, {per_minute} are its share")


class Twins(Checker):
    """The array allocator and the prefix tree do what their references do, page for page."""

    name = "twins"

    def equal(self, found: object, expected: object, what: str) -> None:
        self.looked += 1
        if found != expected:
            self.fail(f"{what}: {found}, and the reference says {expected}")


class Checkers:
    """One of each; those that are named in `muted` only look."""

    def __init__(self, muted: frozenset[str] = frozenset()) -> None:
        self.no_wild_write = NoWildWrite()
        self.no_alias = NoAlias()
        self.read_own = ReadOwn()
        self.no_early_ack = NoEarlyAck()
        self.armed_first = ArmedFirst()
        self.no_wild_read = NoWildRead()
        self.no_leak = NoLeak()
        self.once = Once()
        self.no_stub = NoStub()
        self.no_poison = NoPoison()
        self.ends_once = EndsOnce()
        self.admission = Admission()
        self.fairness = Fairness()
        self.quota = Quota()
        self.twins = Twins()
        for each in vars(self).values():
            each.muted = each.name in muted

    def looked(self) -> dict[str, int]:
        """How often each could have failed."""
        return {each.name: each.looked for each in vars(self).values()}
