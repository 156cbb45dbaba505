"""One request is one trace, in whatever process its spans are recorded; nothing of it is a user's."""

from __future__ import annotations

import asyncio
import http.server
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quiesce.errors import ConfigurationError, InvariantBroken
from quiesce.lab.client import Client
from quiesce.lab.cluster import Cluster
from quiesce.lab.faults import Held, Hold, LetGo
from quiesce.protocol.dispatch import WorkerSnapshot
from quiesce.telemetry.spans import ROOT, OtelSpans, Spans, ids_of, open_spans

MARKER = "xylophone"
FLAGS = ("--model", "tiny", "--context-length", "512", "--page-size", "4", "--deterministic")


def exported(*recorders: OtelSpans, exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    for recorder in recorders:
        recorder._provider.force_flush()
    found = {span.name: span for span in exporter.get_finished_spans()}
    for recorder in recorders:
        recorder.close()
    return found


def test_two_processes_record_one_trace() -> None:
    exporter = InMemorySpanExporter()
    router, decode = OtelSpans("router", "router", exporter), OtelSpans("decode", "decode-0", exporter)
    now_s = time.monotonic()
    decode.record("req-1", "hold", now_s - 0.5, attempt=7, proof="drained")
    router.record("req-1", ROOT, now_s - 2.0)
    decode.record("req-2", "decode", now_s)
    spans = exported(router, decode, exporter=exporter)
    root, hold, other = spans[ROOT], spans["hold"], spans["decode"]
    assert root.context is not None
    assert hold.context is not None
    assert other.context is not None
    assert (root.context.trace_id, root.context.span_id) == ids_of("req-1")
    assert root.parent is None
    assert hold.parent is not None
    assert (hold.context.trace_id, hold.parent.span_id) == ids_of("req-1")
    assert hold.context.span_id != root.context.span_id
    assert other.context.trace_id != root.context.trace_id
    assert dict(hold.attributes or {}) == {"quiesce.request": "req-1", "quiesce.attempt": 7, "quiesce.proof": "drained"}
    assert hold.resource.attributes["service.name"] == "quiesce-decode"
    assert hold.end_time is not None
    assert hold.start_time is not None
    assert 0.5e9 <= hold.end_time - hold.start_time < 1.5e9


def test_there_is_no_attribute_for_a_users_text() -> None:
    recorder = OtelSpans("decode", "decode-0", InMemorySpanExporter())
    with pytest.raises(InvariantBroken, match="log_fields"):
        recorder.record("req-1", "decode", 0.0, prompt="secret")
    recorder.close()


def test_without_an_endpoint_nothing_is_recorded() -> None:
    assert type(open_spans("decode", "decode-0", None)) is Spans
    Spans().record("req-1", "decode", 0.0)


def test_without_the_extra_the_endpoint_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"\.\[otel\]"):
        open_spans("decode", "decode-0", "http://127.0.0.1:1/v1/traces")


class Collector(http.server.ThreadingHTTPServer):
    """An OpenTelemetry collector that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Collecting)
        self.bodies: list[bytes] = []

    @property
    def spans(self) -> list[Any]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def names(self, trace_id: bytes) -> set[str]:
        return {span.name for span in self.spans if span.trace_id == trace_id}


class Collecting(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def trace_of(request: str) -> bytes:
    return ids_of(request)[0].to_bytes(16, "big")


def is_held(view: WorkerSnapshot) -> bool:
    return [room.state for room in view.rooms] == ["holding"]


@pytest.mark.slow
async def test_a_server_tells_of_answers_and_of_holds(collector: Collector) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    async with Cluster(*FLAGS, "--otlp-endpoint", endpoint) as cluster, Client(cluster.url) as client:
        assert not (await client.ask({"prompt": MARKER, "max_tokens": 4, "ignore_eos": True})).error
        faults = await cluster.faults("prefill-0")
        await faults.order(Hold())
        asking = asyncio.create_task(client.ask({"prompt": f"held {MARKER}", "max_tokens": 4}))
        await faults.wait_for(Held)
        asking.cancel()
        held = (await cluster.until("decode-0", is_held)).rooms[0].request
        await faults.order(LetGo())
        faults.close()
        await cluster.until("decode-0", lambda view: not view.rooms)
    # Each process sends what is left when it ends.
    assert collector.names(trace_of(held)) == {ROOT, "prefill", "transfer", "hand-off", "hold", "source hold"}
    roots = {span.trace_id for span in collector.spans if span.name == ROOT} - {trace_of(held)}
    whole = {ROOT, "prefill", "transfer", "hand-off", "decode"}
    assert all(collector.names(trace) == whole for trace in roots)
    assert len(roots) == 2  # the router's own test generation is the other one
    assert not any(MARKER.encode() in body for body in collector.bodies)
