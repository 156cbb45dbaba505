"""What each tenant has of its limits: requests at once, and requests and tokens in a minute."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from quiesce.errors import RequestRejected
from quiesce.protocol import quota
from quiesce.protocol.quota import Bucket
from quiesce.router.failures import Throttled
from quiesce.router.order import EXPECTED_TOKENS, Order, at_most
from quiesce.router.tenants import Tenant

REQUESTS, TOKENS = "requests", "tokens"


class Quotas:
    """Lives on one event loop. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._buckets: dict[tuple[str, str], Bucket] = {}

    @contextlib.contextmanager
    def visit(self, tenant: Tenant) -> Iterator[Visit]:
        """One request, from its key to its end. Raises Throttled when the tenant has as many as it may."""
        most = tenant.max_concurrent
        if most is not None and self._running[tenant.name] >= most:
            raise Throttled(f"{most} requests of this key's tenant run at once already.", 1)
        self.take(tenant, REQUESTS, 1)
        self._running[tenant.name] += 1
        visit = Visit(self, tenant)
        try:
            yield visit
        finally:
            self._running[tenant.name] -= 1
            visit.settle()

    def take(self, tenant: Tenant, kind: str, amount: int) -> None:
        """Raises Throttled when it is not there, RequestRejected when it can never be; then nothing is taken."""
        bucket = self._bucket(tenant, kind)
        if bucket is None:
            return
        bucket, wait_s = quota.take(bucket, amount, self._clock())
        self._buckets[tenant.name, kind] = bucket
        if wait_s == math.inf:
            message = (
                f"This needs {amount} {kind}, but its tenant may have {bucket.per_minute} in a minute: ask for less."
            )
            raise RequestRejected(message, code="request_too_large", status=400)
        if wait_s:
            message = f"Its tenant's limit of {bucket.per_minute} {kind} a minute is reached; {amount} were asked for."
            raise Throttled(message, math.ceil(wait_s), self.headers(tenant))

    def share_tokens(self, tenant: Tenant, prompt_tokens: int, answers: int) -> int | None:
        """What each of `answers` may have that name no length: its part of what is left now. None without a limit.

        But no less than answers are expected to have, if a whole minute gives it: then `take` says when to come back.
        """
        bucket = self._bucket(tenant, TOKENS)
        if bucket is None:
            return None
        now, whole = ((math.floor(each) - prompt_tokens) // answers for each in (bucket.left, bucket.per_minute))
        return max(1, now, min(whole, EXPECTED_TOKENS))

    def give_back(self, tenant: Tenant, kind: str, amount: int) -> None:
        """What was taken and not used; below 0, what was used and not taken."""
        if (bucket := self._bucket(tenant, kind)) is not None:
            self._buckets[tenant.name, kind] = quota.spend(bucket, -amount)

    def headers(self, tenant: Tenant) -> dict[str, str]:
        """What is left of each limit that the tenant has, as OpenAI's servers say it."""
        found = {}
        for kind in (REQUESTS, TOKENS):
            if (bucket := self._bucket(tenant, kind)) is not None:
                found[f"x-ratelimit-limit-{kind}"] = str(bucket.per_minute)
                found[f"x-ratelimit-remaining-{kind}"] = str(max(0, math.floor(bucket.left)))
                found[f"x-ratelimit-reset-{kind}"] = show_s(quota.reset_s(bucket))
        return found

    def _bucket(self, tenant: Tenant, kind: str) -> Bucket | None:
        """As of now and under the tenant's present limit; None without one."""
        per_minute = tenant.requests_per_minute if kind == REQUESTS else tenant.tokens_per_minute
        if per_minute is None:
            return None
        now_s = self._clock()
        known = self._buckets.get((tenant.name, kind)) or quota.full(per_minute, now_s)
        return quota.limited_to(known, per_minute, now_s)


class Visit:
    """One request's part of its tenant's limits, and what it used of them: tokens of prompts and of answers."""

    def __init__(self, quotas: Quotas, tenant: Tenant) -> None:
        self.tenant = tenant
        self.used = (0, 0)
        self._quotas = quotas
        self._taken_tokens: int | None = None

    def headers(self) -> dict[str, str]:
        return self._quotas.headers(self.tenant)

    def take(self, orders: Sequence[Order], n: int, longest_tokens: int) -> Sequence[Order]:
        """Ask for the tokens of `n` answers to each prompt. Raises RequestRejected, and then nothing is taken.

        Returns what may be ordered: under a limit, an answer of no stated length is as long as was taken for it, which
        is what fits into `longest_tokens` with its prompt, or its part of what is left.
        """
        for order in orders:
            self._check_sizes(order)
        share = self._quotas.share_tokens(self.tenant, sum(order.prompt_tokens for order in orders), n * len(orders))
        if share is not None:
            orders = [at_most(order, min(share, max(1, longest_tokens - order.prompt_tokens))) for order in orders]
        asked = sum(order.prompt_tokens + n * (order.max_tokens or order.usual_max_tokens or 0) for order in orders)
        self._quotas.take(self.tenant, TOKENS, asked)
        self._taken_tokens = asked
        return orders

    def use(self, used: tuple[int, int]) -> None:
        """That much was used until now."""
        self.used = used

    def settle(self) -> None:
        """What was taken and not used is given back; what was used beyond it is owed."""
        if self._taken_tokens is not None:
            self._quotas.give_back(self.tenant, TOKENS, self._taken_tokens - sum(self.used))

    def _check_sizes(self, order: Order) -> None:
        tenant = self.tenant
        if tenant.max_prompt_tokens is not None and order.prompt_tokens > tenant.max_prompt_tokens:
            raise RequestRejected(
                f"The prompt has {order.prompt_tokens} tokens; its tenant may send {tenant.max_prompt_tokens}.",
                code="prompt_too_long",
                param="messages",
            )
        if tenant.max_tokens is not None and (order.max_tokens or 0) > tenant.max_tokens:
            raise RequestRejected(
                f"max_tokens is {order.max_tokens}; its tenant may ask for {tenant.max_tokens}.",
                code="invalid_value",
                param="max_tokens",
            )


def show_s(seconds: float) -> str:
    """A duration as OpenAI's servers write it: 120ms, 1s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    whole = math.ceil(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"
