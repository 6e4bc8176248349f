"""Spans on their way to a collector: OTLP over HTTP on the loopback, and one that never answers."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from app.instrumentation.tracing import export
from app.server.single_process import serve
from tests.deploy.pages.commands import commands
from tests.server.test_server import settings
from tests.server.test_single_process import _surroundings, terminate, while_serving  # noqa: F401 - a fixture
from tests.support.processes import free_port
from tests.support.waiting import HANG_S

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Receives OTLP over HTTP, as the protocol's specification has it: POST /v1/traces, protobuf."""

    def __init__(self) -> None:
        self.received: list[ExportTraceServiceRequest] = []
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
                collector.received.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resources(self) -> dict[str, str]:
        return {
            each.key: each.value.string_value
            for request in self.received
            for resource in request.resource_spans
            for each in resource.resource.attributes
        }


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()
    thread.join(HANG_S)


def test_what_was_traced_has_been_sent_when_the_server_has_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    (shown,) = commands("docs/traces.md", "ferry")
    given = dict(re.findall(r"(\w+)=(\S+) ", shown.text))
    endpoint = given["OTEL_EXPORTER_OTLP_ENDPOINT"].replace("http://collector:4318", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "digits")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")  # only the end sends
    port = free_port()

    def act(client: httpx.Client) -> None:
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        client.post("/predict", json={"instances": [[1, 2]]}, headers=headers).raise_for_status()
        assert collector.received == []
        terminate()

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    traced = {"traces": given["FERRY_TRACES"], "trace_sample_share": 0.0}
    assert serve(settings(tmp_path, host="127.0.0.1", rest_port=port, **traced)) == 0
    thread.join(HANG_S)
    found = {span.name: span for span in collector.spans()}
    assert found.keys() == {"POST /predict", "queue", "compute", "batch"}
    request = found["POST /predict"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, SPAN)
    assert found["compute"].parent_span_id == request.span_id
    assert [link.span_id for link in found["batch"].links] == [found["compute"].span_id]
    assert collector.resources()["service.name"] == "digits"


def test_a_collector_that_never_answers_holds_up_neither_requests_nor_the_end_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(export, "FLUSH_S", 0.05)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0), backlog=128) as deaf:  # accepts, and reads nothing
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{deaf.getsockname()[1]}")

        async def main() -> None:
            sent = export.Export()
            for number in range(1000):
                sent.spans.add(str(number), 0, 1)
            await asyncio.wait_for(sent.close(), HANG_S)

        asyncio.run(main())
    assert "The last spans could not be sent within 0.05 s and are lost" in caplog.text
    for thread in set(threading.enumerate()) - before:  # they try again at random times, which later tests would see
        thread.join(HANG_S)
        assert not thread.is_alive()


def test_headers_that_cannot_be_read_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They hold credentials."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer-the-secret,x y")
    made = export.Export()
    assert "OTEL_EXPORTER_OTLP_HEADERS is not NAME=VALUE" in caplog.text
    assert "the-secret" not in caplog.text
    asyncio.run(made.close())
