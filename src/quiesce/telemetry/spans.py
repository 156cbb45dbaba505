"""Traces: what happened to one request, in every process, as spans of one OpenTelemetry trace.

The trace's id and its root span's id follow from the request's id, which every process knows already: nothing travels
for it. Spans are recorded when they are over, with ids and numbers as attributes and never a text of a user.
"""

from __future__ import annotations

import hashlib
import importlib.util
import time
from typing import TYPE_CHECKING

from quiesce.errors import ConfigurationError, in_checkout, invariant
from quiesce.telemetry.logs import FIELDS

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

ROOT = "request"
"""The router's span of a try; all others are below it."""

EXPORT_S = 3
"""How long a collector that does not answer may hold up one batch, and the end of a process."""

_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

Attribute = str | int | float


class Spans:
    """Records nothing: what processes have that were given no `--otlp-endpoint`."""

    def record(self, request: str, name: str, since_s: float, **attributes: Attribute) -> None:
        """A span of `request` from `since_s` (monotonic seconds) until now. `ROOT` names the root span."""


class OtelSpans(Spans):
    """Hands spans to an exporter, in the background. Lives on one thread."""

    def __init__(self, role: str, worker: str, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class RequestIds(RandomIdGenerator):
            """Random ids, except for a root span's."""

            preset: tuple[int, int] | None = None

            def generate_trace_id(self) -> int:
                return self.preset[0] if self.preset else super().generate_trace_id()

            def generate_span_id(self) -> int:
                return self.preset[1] if self.preset else super().generate_span_id()

        self._ids = RequestIds()
        names = {"service.name": f"quiesce-{role}", "service.instance.id": worker}
        self._provider = TracerProvider(resource=Resource.create(names), id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
        self._tracer = self._provider.get_tracer("quiesce")

    def record(self, request: str, name: str, since_s: float, **attributes: Attribute) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        unknown = attributes.keys() - FIELDS
        invariant(not unknown, "log_fields", ", ".join(sorted(unknown)))
        trace_id, root_id = ids_of(request)
        parent = NonRecordingSpan(SpanContext(trace_id, root_id, True, TraceFlags(TraceFlags.SAMPLED)))
        above = Context() if name == ROOT else set_span_in_context(parent, Context())
        told = {f"quiesce.{key}": value for key, value in attributes.items()}
        end_ns = time.time_ns()
        start_ns = end_ns - int((time.monotonic() - since_s) * 1e9)
        self._ids.preset = ids_of(request) if name == ROOT else None
        span = self._tracer.start_span(
            name, above, attributes={"quiesce.request": request, **told}, start_time=start_ns
        )
        self._ids.preset = None
        span.end(end_ns)

    def close(self) -> None:
        """Send what was recorded."""
        self._provider.shutdown()


def ids_of(request: str) -> tuple[int, int]:
    """The trace id (128 bits) and the root span's id (64 bits) of a request; never 0."""
    digest = hashlib.blake2b(request.encode(), digest_size=24, person=b"quiesce-trace").digest()
    return int.from_bytes(digest[:16], "big") | 1, int.from_bytes(digest[16:], "big") | 1


def open_spans(role: str, worker: str, endpoint: str | None) -> Spans:
    """What a process records to: OTLP over HTTP at `endpoint`, or nothing. Raises ConfigurationError."""
    if endpoint is None:
        return Spans()
    require_exporter(endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OtelSpans(role, worker, OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S))


def require_exporter(endpoint: str | None) -> None:
    """Look, without importing it, whether `open_spans` will find its library. Raises ConfigurationError."""
    if endpoint is not None and not _is_installed(_EXPORTER):
        raise ConfigurationError([f"--otlp-endpoint needs OpenTelemetry. {in_checkout('otel')}"])


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # what it is in is not there
        return False
