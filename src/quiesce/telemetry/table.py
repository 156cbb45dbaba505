"""Every metric of Quiesce, in one table. `python -m quiesce.telemetry.docs` makes `docs/metrics.md` from it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One family. Every series also bears `role` and `worker`. `buckets` are a histogram's upper bounds, in `unit`.

    `name` is what code says; scrapers see `exposed_name`.
    """

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


CONSTANT_LABELS = ("role", "worker")

LABELS = {
    "role": "`prefill`, `decode`, `aggregated`, `router` or `serve`",
    "worker": "the process's name",
    "state": "`free`, `used`, `cached`, `reserved`, `held` or `quarantined`; landing pages are never used nor cached",
    "proof": "`never_armed`, `drained`, `fenced`, or `timeout`, which is none (`--unsafe-release-on-timeout`)",
    "kind": "the message's tag, for example `abort_ack`",
    "reason": "of a message: why it changed nothing, for example `early`, `late`, `duplicate` or `foreign`; of a write "
    "or read: `not_leased` (its lease is over, or never was), `foreign_page`, `foreign_slot`, `revoked` (midway), "
    "`fenced` (its peer was, midway) or `malformed`; of a data connection: `fenced` (an earlier life), `unproved`, "
    "`uncertified` or `crowded`",
    "code": "the error's code, as clients see it",
    "outcome": "of a write: `landed`, `failed_quiesced` or `failed_in_flight`; of a request: `finished`, `cancelled`, "
    "`rejected` or `failed`; of a registration: `registered`, and how it ended, `left` or `lost`; or `refused`",
    "where": "`commit` (the hand-off was refused), `decode` (pages changed while in use) or `share` (while cached)",
    "field": "the field, or the prefix of its name with `*`",
    "tenant": "the tenant's name in the file of `--tenants`; `default` for `--api-key` and where no key is needed",
    "breaker": "a worker's name, or two with `+` for what is between them",
    "phase": "`closed`, `suspected` (asked last, and probed), `open` or `half_open` (a probe is under way)",
    "unfit": "`worker` or `pair`",
    "file": "`tls_cert` (`--tls-cert`) or `tls_ca` (`--tls-ca`)",
    "restarted": "the name of the worker that was started again",
}
"""What label values mean, for the docs page."""

_SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_COPY_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


def _counter(name: str, unit: str, help_text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, unit=unit, help=help_text, labels=labels)


def _gauge(name: str, unit: str, help_text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, unit=unit, help=help_text, labels=labels)


def _histogram(name: str, buckets: tuple[float, ...], help_text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, unit="seconds", help=help_text, labels=labels, buckets=buckets)


METRICS: tuple[Metric, ...] = (
    # ------------------------------------------------------------ pages and who owns them
    _gauge("quiesce_pages", "pages", "KV pages of this worker's pool by state.", "state"),
    _gauge("quiesce_landing_pages", "pages", "Decode with `--landing staged`: pages that writes land in.", "state"),
    _counter("quiesce_quarantined_attempts", "attempts", "Holds that passed their deadline without a proof."),
    _histogram("quiesce_hold_seconds", _LONG_S, "How long pages were held from the end of a request to their release."),
    _counter(
        "quiesce_held_page_seconds", "page seconds", "Pages times the time they were held or quarantined, so far."
    ),
    _gauge("quiesce_oldest_hold_seconds", "seconds", "Age of the oldest hold, quarantine included; 0 without any."),
    _counter("quiesce_releases", "leases", "Held leases that were released, by proof.", "proof"),
    _counter("quiesce_unsafe_releases", "leases", "Leases released by a timer, without proof. Above 0: unsafe."),
    _counter("quiesce_tag_mismatches", "requests", "Requests with a page that bore a foreign tag.", "where"),
    _counter("quiesce_prefix_hits", "prompts", "Prompts that began with pages of the prefix cache."),
    _counter("quiesce_prefix_tokens", "tokens", "Prompt tokens in those pages: not computed (decode: not sent) again."),
    _counter("quiesce_prefix_evicted_pages", "pages", "Pages that left the prefix cache because others needed room."),
    # ------------------------------------------------------------ the hand-off protocol
    _gauge("quiesce_waiting_handoffs", "requests", "Hand-offs that wait for their other half."),
    _counter("quiesce_aborts_sent", "messages", "ABORT messages sent for the first time."),
    _counter("quiesce_aborts_resent", "messages", "ABORT messages sent again for want of an ack."),
    _counter("quiesce_ignored_messages", "messages", "Messages that changed nothing.", "kind", "reason"),
    _counter("quiesce_poisoned_attempts", "attempts", "Attempts with a write, or a read, of unknown fate."),
    _counter(
        "quiesce_refused_peers",
        "handshakes",
        "HELLOs refused here: another version or shape, a name that is taken, an earlier life of a worker.",
    ),
    _counter(
        "quiesce_refused_writes",
        "writes",
        "Decode: writes that it did not place, or not to the end. Only where decode itself places (`tcp`).",
        "reason",
    ),
    _counter(
        "quiesce_refused_reads",
        "reads",
        "Prefill with `--transfer pull`: reads that it did not serve, or not to the end (`tcp`).",
        "reason",
    ),
    _counter(
        "quiesce_refused_data_connections",
        "connections",
        "Connections for page data that were shut because of who asked (`tcp`).",
        "reason",
    ),
    _counter(
        "quiesce_protocol_breaches",
        "messages",
        "What joined workers sent that cannot be. They are disconnected, and refused after the third of one life.",
    ),
    _counter(
        "quiesce_fences",
        "peers",
        "Peers that were proved unable to write, or read, any more.",
    ),
    # ------------------------------------------------------------ the terms of the hold inequality
    _histogram(
        "quiesce_abort_propagation_seconds",
        _LONG_S,
        "From a request's end at decode to the last rank's ABORT_ACK: both ways, and prefill's answer between them.",
    ),
    _histogram("quiesce_abort_answer_seconds", _LONG_S, "From an ABORT heard at prefill to its ABORT_ACK."),
    _histogram(
        "quiesce_remaining_compute_seconds",
        _LONG_S,
        "From a request's end at prefill to the end of the computation that was at work on it then.",
    ),
    _histogram(
        "quiesce_inflight_write_seconds",
        _LONG_S,
        "From a request's end at prefill to the end of its last write that was under way then.",
    ),
    # ------------------------------------------------------------ transfers
    _counter("quiesce_writes", "writes", "Launched writes that ended, by outcome.", "outcome"),
    _counter("quiesce_reads", "reads", "Launched reads that ended, by outcome (`--transfer pull`).", "outcome"),
    _counter("quiesce_transfer_bytes", "bytes", "KV bytes that landed."),
    _histogram("quiesce_transfer_seconds", _COPY_S, "How long one launched write, or read, took."),
    _histogram(
        "quiesce_landing_seconds", _COPY_S, "Staged landing: from the last DONE to the verdict over the private copy."
    ),
    # ------------------------------------------------------------ requests
    _counter("quiesce_requests", "requests", "Requests that ended, by outcome.", "outcome"),
    _counter("quiesce_rejections", "requests", "Requests refused before anything existed for them.", "code"),
    _counter(
        "quiesce_compute_errors",
        "requests",
        "Requests that failed alone because computing for them raised an error or gave no finite number.",
    ),
    _counter("quiesce_deadlines", "requests", "Requests that a worker ended because their `timeout` had passed."),
    _counter(
        "quiesce_retries",
        "tries",
        "Tries that failed before their client had any output and were followed by another one.",
    ),
    _gauge(
        "quiesce_breaker",
        "boolean",
        "1 for the phase that a circuit breaker is in, once it has moved.",
        "breaker",
        "phase",
    ),
    _counter("quiesce_breaker_moves", "moves", "Circuit breakers that came into a phase.", "breaker", "phase"),
    _counter("quiesce_stripped_fields", "requests", "Requests with a field that no client may choose.", "field"),
    _counter("quiesce_generated_tokens", "tokens", "Tokens of answers, as the router received them."),
    # ------------------------------------------------------------ tenants
    _counter("quiesce_tenant_requests", "requests", "A tenant's requests that ended, by outcome.", "tenant", "outcome"),
    _counter("quiesce_tenant_rejections", "requests", "A tenant's requests that were refused.", "tenant", "code"),
    _counter("quiesce_tenant_prompt_tokens", "tokens", "Tokens of prompts that workers began, by tenant.", "tenant"),
    _counter("quiesce_tenant_generated_tokens", "tokens", "Tokens of answers, by tenant.", "tenant"),
    _gauge("quiesce_queued_requests", "requests", "Answers that wait at the router for their turn.", "tenant"),
    _histogram("quiesce_queue_seconds", _LONG_S, "How long an answer waited at the router for its turn.", "tenant"),
    # ------------------------------------------------------------ load
    _gauge("quiesce_running_requests", "requests", "Requests being computed now."),
    _gauge("quiesce_waiting_requests", "requests", "Admitted requests that wait for their turn."),
    _histogram("quiesce_ttft_seconds", _LONG_S, "Time from a request's arrival to its first token."),
    _histogram("quiesce_itl_seconds", _SHORT_S, "Time between two tokens of one request."),
    _gauge("quiesce_ready", "boolean", "1 while this process takes new requests; the router: while a pair is proved."),
    _counter(
        "quiesce_registrations",
        "registrations",
        "Times that workers announced themselves to a router, and what became of it; each try is one.",
        "outcome",
    ),
    _gauge(
        "quiesce_unfit",
        "subjects",
        "Workers whose registration a router refuses, and pairs that do not fit, now; `/readiness` says why.",
        "unfit",
    ),
    _gauge(
        "quiesce_certificate_expires_seconds",
        "seconds",
        "Until the first certificate in a file ends, below 0 afterwards. Only where TLS is used.",
        "file",
    ),
    _counter("quiesce_worker_restarts", "processes", "Workers that died and were started again.", "restarted"),
)
