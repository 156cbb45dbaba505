"""What the router counts, and the metrics of the whole deployment in one text."""

from __future__ import annotations

import time
from collections.abc import Iterable

from quiesce.protocol.breaker import Phase
from quiesce.router.throughput import Throughput
from quiesce.telemetry.metrics import Telemetry


class Meter:
    """The router's own metrics."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self.throughput = Throughput()
        self._ttft = telemetry.histogram("quiesce_ttft_seconds")
        self._itl = telemetry.histogram("quiesce_itl_seconds")
        self._tokens = telemetry.counter("quiesce_generated_tokens")

    def ended(self, outcome: str) -> None:
        """`outcome` is finished, cancelled, rejected or failed."""
        self.telemetry.inc("quiesce_requests", outcome=outcome)
        self.throughput.ended()

    def rejected(self, code: str) -> None:
        self.telemetry.inc("quiesce_rejections", code=code)

    def visited(self, tenant: str, outcome: str, prompt_tokens: int, generated_tokens: int) -> None:
        """A tenant's request ended, as `ended` has it, and took this much."""
        self.telemetry.inc("quiesce_tenant_requests", tenant=tenant, outcome=outcome)
        self.telemetry.inc("quiesce_tenant_prompt_tokens", prompt_tokens, tenant=tenant)
        self.telemetry.inc("quiesce_tenant_generated_tokens", generated_tokens, tenant=tenant)

    def refused(self, tenant: str, code: str) -> None:
        """A tenant's request was refused."""
        self.telemetry.inc("quiesce_tenant_rejections", tenant=tenant, code=code)

    def placed(self, tenant: str, seconds: float) -> None:
        """A request had its turn after so long."""
        self.telemetry.observe("quiesce_queue_seconds", seconds, tenant=tenant)

    def queued(self, tenant: str, count: int) -> None:
        """So many of a tenant's requests wait for their turn."""
        self.telemetry.set("quiesce_queued_requests", count, tenant=tenant)

    def stripped(self, fields: Iterable[str]) -> None:
        for field in fields:
            self.telemetry.inc("quiesce_stripped_fields", field=field)

    def retried(self, tries: int) -> None:
        self.telemetry.inc("quiesce_retries", tries)

    def restarted(self, worker: str) -> None:
        """A worker came back as another life."""
        self.telemetry.inc("quiesce_worker_restarts", restarted=worker)

    def breaker_moved(self, name: str, phase: Phase) -> None:
        """A circuit breaker is in this phase now."""
        self.telemetry.inc("quiesce_breaker_moves", breaker=name, phase=phase.value)
        for each in Phase:
            self.telemetry.set("quiesce_breaker", each is phase, breaker=name, phase=each.value)

    def clock(self) -> TokenClock:
        """Start timing one request."""
        return TokenClock(self)

    def registration(self, outcome: str) -> None:
        """How one began or ended."""
        self.telemetry.inc("quiesce_registrations", outcome=outcome)

    def unused(self, workers: int, pairs: int) -> None:
        """So many registrations are refused now, and so many pairs do not fit."""
        self.telemetry.set("quiesce_unfit", workers, unfit="worker")
        self.telemetry.set("quiesce_unfit", pairs, unfit="pair")

    def ready(self, ready: bool) -> None:
        self.telemetry.set("quiesce_ready", ready)

    def tokens_after(self, seconds: float, tokens: int, *, first: bool) -> None:
        self._tokens.inc(tokens)
        self.throughput.tokens(tokens)
        if first:
            self._ttft.observe(seconds)
            self.throughput.first_token(seconds)
            return
        for _ in range(tokens):
            self._itl.observe(seconds / tokens)


class TokenClock:
    """Times the tokens of one request, from its arrival."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._last_s = time.monotonic()
        self._first = True

    def beside(self) -> TokenClock:
        """One that times another answer to the same request."""
        clock = TokenClock(self._meter)
        clock._last_s = self._last_s
        return clock

    def tick(self, tokens: int) -> None:
        """`tokens` came now."""
        if tokens:
            now_s = time.monotonic()
            self._meter.tokens_after(now_s - self._last_s, tokens, first=self._first)
            self._last_s, self._first = now_s, False
