"""Spans of requests to a whole server, as the SDK's own exporter in memory gets them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import run
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.openmetrics import parser as openmetrics

from app import runtime
from app.codecs.protobuf.messages import message_class
from app.core.events import BatchExecuted
from app.instrumentation.tracing import export
from app.instrumentation.tracing.batch_spans import BatchSpans
from tests.every_protocol.live import RUNTIME, Live, live
from tests.every_protocol.models import FAILED, REJECTED
from tests.support.tensor_protos import encode_tensor
from tests.support.waiting import until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
PREDICT = "/v1/models/m:predict"
ROUTE = "POST /v1/models/{model}:predict"
GRPC_PREDICT = "tensorflow.serving.PredictionService/Predict"

CASCADE = """
steps:
  first: {model: m, inputs: {features: features}}
  second: {model: m, inputs: {features: first.doubled}}
outputs: {doubled: second.doubled}
"""


class Traced:
    """The running server, and the spans that were exported."""

    def __init__(self, server: Live, exporter: InMemorySpanExporter) -> None:
        self.live = server
        self._exporter = exporter

    def spans(self) -> Sequence[ReadableSpan]:
        of_frontend = getattr(self.live.app.server, "_traces", None)  # None where there is no frontend
        for traces in filter(None, [of_frontend, self.live.server._subscribers.traces]):
            if traces._batches is not None:
                traces._batches.close()
            traces._export._queue.force_flush()
        return self._exporter.get_finished_spans()

    def requests(self) -> list[ReadableSpan]:
        return [each for each in self.spans() if each.kind is SpanKind.SERVER]

    def children(self, parent: ReadableSpan) -> dict[str, ReadableSpan]:
        number = parent.context.span_id
        return {each.name: each for each in self.spans() if each.parent and each.parent.span_id == number}

    async def post(
        self, path: str = PREDICT, value: float = 1.0, rows: int = 1, http2: bool = False, **headers: str
    ) -> Any:
        client = self.live.http2 if http2 else self.live.http
        return await client.post(path, json={"instances": rows * [[value, 2]]}, headers=headers)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(export, "OTLPSpanExporter", lambda: exporter)
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    return exporter


@asynccontextmanager
async def traced(folder: Path, exporter: InMemorySpanExporter, **more: Any) -> AsyncIterator[Traced]:
    settings = {"traces": True, "trace_sample_share": 0.0, **more}
    async with live(folder, **settings) as server:
        yield Traced(server, exporter)


def lasts(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def of(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def check_children(request: ReadableSpan, children: Mapping[str, ReadableSpan]) -> None:
    """They follow each other within the request."""
    assert children.keys() == {"queue", "compute"}
    (begun, over), queue, compute = lasts(request), lasts(children["queue"]), lasts(children["compute"])
    assert begun <= queue[0] <= queue[1] == compute[0] <= compute[1] <= over


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("frontends", [0, 1])
def test_a_request_is_a_span_of_its_callers_trace(
    tmp_path: Path, exporter: InMemorySpanExporter, http2: bool, frontends: int
) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter, frontends=frontends) as world:
            assert (await world.post(rows=3, http2=http2, **SAMPLED, tracestate="a=1")).status_code == 200
            (span,) = world.requests()
            assert span.name == ROUTE
            assert span.parent is not None
            assert f"{span.context.trace_id:032x}" == TRACE
            assert f"{span.parent.span_id:016x}" == SPAN
            assert span.parent.is_remote
            assert span.context.trace_state.to_header() == "a=1"
            assert span.resource.attributes["service.name"] == "ferry"
            assert of(span) == {
                "http.request.method": "POST", "http.response.status_code": 200, "http.route": ROUTE[5:],
                "ferry.model": "m", "ferry.model.version": 1, "ferry.signature": "serving_default",
                "ferry.rows": 3, "ferry.batch.rows": 3,
            }  # fmt: skip
            assert span.status.status_code is StatusCode.UNSET
            check_children(span, world.children(span))

            # A bucket of the metrics page leads to it.
            page = await world.live.http.get("/metrics", headers={"accept": "application/openmetrics-text"})
            families = {family.name: family for family in openmetrics.text_string_to_metric_families(page.text)}
            (found,) = filter(None, [sample.exemplar for sample in families["ferry_request_seconds"].samples])
            assert found.labels == {"trace_id": TRACE, "span_id": f"{span.context.span_id:016x}"}
            assert float(found.timestamp) == pytest.approx(lasts(span)[1] / 1e9, abs=1e-3)
            assert found.value == pytest.approx((lasts(span)[1] - lasts(span)[0]) / 1e9, abs=1e-5)

    asyncio.run(main())


def test_who_is_not_sampled_or_malformed_is_left_to_flag_and_chance(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter, trace_sample_share=1.0) as world:
            assert (await world.post(**UNSAMPLED)).status_code == 200
            assert world.requests() == []
            assert (await world.post(traceparent="00-nonsense-01")).status_code == 200
            (span,) = world.requests()
            assert span.parent is None
            assert f"{span.context.trace_id:032x}" != TRACE

    asyncio.run(main())


def test_a_malformed_state_is_left_out_and_logged_by_nobody(
    tmp_path: Path, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter) as world:
            for state in ("=,;", "a=1,a=2", "\x00", ",".join(f"k{number}=1" for number in range(60))):
                with suppress(httpx.LocalProtocolError):  # the client's own rule
                    assert (await world.post(**SAMPLED, tracestate=state)).status_code == 200
            assert len(world.requests()) == 3
            assert {f"{each.context.trace_id:032x}" for each in world.requests()} == {TRACE}

    asyncio.run(main())
    assert "identifiers" not in caplog.text


def test_share_0_traces_none_by_chance(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter) as world:
            await world.post()
            await world.post(traceparent="00-nonsense-01")
            await world.live.http.get("/v1/models/m")
            assert world.spans() == ()

    asyncio.run(main())


def test_requests_without_a_fast_path_have_spans_too(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter) as world:
            await world.live.http.get("/v1/models/m", headers=SAMPLED)
            nowhere = await world.live.http.get("/v1/models/m/nowhere", headers=SAMPLED)
            await world.live.http.post(  # of which the fast path takes none
                PREDICT, content=iter_body(b'{"instances": [[1, 2]]}'), headers=SAMPLED
            )
            named = [(each.name, of(each)["http.response.status_code"]) for each in world.requests()]
            assert named == [("GET /v1/models/{model}", 200), ("GET", nowhere.status_code), (ROUTE, 200)]
            check_children(world.requests()[2], world.children(world.requests()[2]))

    asyncio.run(main())


async def iter_body(body: bytes) -> AsyncIterator[bytes]:
    yield body


def test_an_error_of_the_server_is_a_status_and_one_of_the_client_is_none(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter) as world:
            failed = await world.post(value=FAILED, **SAMPLED)
            assert failed.status_code == 500
            assert (await world.post(value=REJECTED, **SAMPLED)).status_code == 400
            server, client = world.requests()
            assert server.status.status_code is StatusCode.ERROR
            assert server.status.description == failed.json()["error"]
            assert of(server)["error.type"] == "500"
            assert client.status.status_code is StatusCode.UNSET
            assert [world.children(each) for each in (server, client)] == [{}, {}]

    asyncio.run(main())


@pytest.mark.parametrize("frontends", [0, 1])
def test_what_shared_a_batch_is_linked_from_its_span(
    tmp_path: Path, exporter: InMemorySpanExporter, frontends: int
) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter, frontends=frontends) as world:
            async with world.live.held():
                asked = [asyncio.create_task(world.post(value=each, **SAMPLED)) for each in range(3)]
                asked.append(asyncio.create_task(world.post(value=9, **UNSAMPLED)))
                await world.live.rows_wait(4)
            await asyncio.gather(*asked)
            await world.live.http.get("/metrics")  # a frontend has told of its requests
            requests = world.requests()
            assert len({each.context.span_id for each in requests}) == 3
            (batch,) = [each for each in world.spans() if each.name == "batch"]
            assert (of(batch)["ferry.batch.rows"], of(batch)["ferry.batch.requests"]) == (4, 4)
            computes = [world.children(each)["compute"] for each in requests]
            assert {each.context.span_id for each in batch.links} == {each.context.span_id for each in computes}
            assert all(of(each)["ferry.batch.rows"] == 4 for each in requests)
            assert batch.parent is None

    asyncio.run(main())


async def send_together(world: Traced, heads: Sequence[Mapping[str, str]]) -> None:
    """In one turn of the event loop: pipelined connections would be read one by one."""
    port = world.live.http.base_url.port
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in heads]
    body = json.dumps({"instances": [[1, 2]]}).encode()
    for (_, writer), head in zip(streams, heads, strict=True):
        more = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    for reader, writer in streams:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


def test_coalesced_requests_have_spans_of_their_own(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    async def main() -> None:
        async with traced(tmp_path, exporter, max_inline_ms=1000.0, max_batch_size=8) as world:
            for _ in range(20):
                await world.post()  # its cost is known
            heads = [{"traceparent": f"00-{TRACE}-{number:016x}-01"} for number in range(1, 4)]
            await send_together(world, [*heads, UNSAMPLED, {}])
            requests = world.requests()
            assert sorted(each.parent.span_id for each in requests if each.parent) == [1, 2, 3]
            assert len({each.context.span_id for each in requests}) == 3
            assert [of(each)["ferry.rows"] for each in requests] == [1, 1, 1]
            assert max(of(each)["ferry.batch.rows"] for each in requests) > 1, "nothing was coalesced"
            for each in requests:
                check_children(each, world.children(each))

    asyncio.run(main())


def test_a_call_of_grpc_is_a_span_by_its_full_name(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    def request(value: float) -> bytes:
        message = message_class("tensorflow.serving.PredictRequest")()
        message.model_spec.name = "m"
        encode_tensor(np.array([[value, 2]] * 2, np.float32), message.inputs["features"], True)
        return bytes(message.SerializeToString())

    async def main() -> None:
        async with traced(tmp_path, exporter) as world:
            call = world.live.channel.unary_unary(f"/{GRPC_PREDICT}")
            await call(request(1), metadata=tuple(SAMPLED.items()))
            await call(request(1), metadata=tuple(UNSAMPLED.items()))
            with pytest.raises(grpc.aio.AioRpcError):
                await call(request(FAILED), metadata=tuple(SAMPLED.items()))
            await until(lambda: len(world.requests()) == 2)
            good, failed = world.requests()
            assert good.name == failed.name == GRPC_PREDICT
            assert of(good) == {
                "rpc.system.name": "grpc", "rpc.method": GRPC_PREDICT, "rpc.response.status_code": "OK",
                "ferry.model": "m", "ferry.model.version": 1, "ferry.signature": "serving_default",
                "ferry.rows": 2, "ferry.batch.rows": 2,
            }  # fmt: skip
            assert good.parent is not None
            assert f"{good.parent.span_id:016x}" == SPAN
            check_children(good, world.children(good))
            assert of(failed)["rpc.response.status_code"] == of(failed)["error.type"] == "INTERNAL"
            assert failed.status.status_code is StatusCode.ERROR

    asyncio.run(main())


def test_each_request_of_a_stream_has_a_span(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    message = message_class("inference.ModelInferRequest")(model_name="m")
    tensor = message.inputs.add(name="features", datatype="FP32", shape=[1, 2])
    tensor.contents.fp32_contents.extend([1, 2])

    async def main() -> None:
        async with traced(tmp_path, exporter) as world:
            stream = world.live.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            replies = stream(iter([message.SerializeToString()] * 2), metadata=tuple(SAMPLED.items()))
            assert len([each async for each in replies]) == 2
            spans = world.requests()
            assert [each.name for each in spans] == ["inference.GRPCInferenceService/ModelStreamInfer"] * 2
            assert {f"{each.parent.span_id:016x}" for each in spans if each.parent} == {SPAN}
            check_children(spans[0], world.children(spans[0]))

    asyncio.run(main())


def test_the_steps_of_a_pipeline_are_children(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    folder = tmp_path / "cascade" / "1"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(CASCADE)

    async def main() -> None:
        async with traced(tmp_path, exporter) as world:
            reply = await world.post("/v1/models/cascade:predict", **SAMPLED)
            assert reply.json() == {"predictions": [[4.0, 8.0]]}
            (span,) = world.requests()
            steps = world.children(span)
            assert steps.keys() == {"first", "second"}
            first, second = steps["first"], steps["second"]
            assert lasts(span)[0] <= lasts(first)[0] <= lasts(first)[1] <= lasts(second)[0] <= lasts(second)[1]
            assert lasts(second)[1] <= lasts(span)[1]
            for step in (first, second):
                check_children(step, world.children(step))
                assert of(step)["ferry.batch.rows"] == 1

    asyncio.run(main())


def test_a_batch_and_its_requests_find_each_other_in_any_order(exporter: InMemorySpanExporter) -> None:
    """Answers that a task gives come after the event of their batch."""

    async def main() -> None:
        sent = export.Export(exporter)
        batches = BatchSpans(sent.spans)
        requests = [sent.spans.add("compute", 0, 1) for _ in range(3)]
        key = ("m", 1, "s", 0.25)
        batches.computed(key, requests[0])
        batches.computed(("m", 1, "s", 0.5), requests[2])  # of a batch that is never told
        batches.executed(BatchExecuted("m", 1, "s", 2, 0, "idle", 0.25, [0.0, 0.0]))
        batches.computed(key, requests[1])
        batches.executed(BatchExecuted("m", 1, "s", 1, 0, "idle", 0.75, [0.0]))  # without a traced request
        batches.close()
        await sent.close()
        (batch,) = [each for each in exporter.get_finished_spans() if each.name == "batch"]
        assert [each.context for each in batch.links] == requests[:2]
        begun, ended = lasts(batch)
        assert ended - begun == 250_000_000

    asyncio.run(main())


def test_the_span_of_a_batch_has_no_more_links_than_the_sdk_allows(exporter: InMemorySpanExporter) -> None:
    async def main() -> None:
        sent = export.Export(exporter)
        batches = BatchSpans(sent.spans)
        batches.executed(BatchExecuted("m", 1, "s", 512, 0, "full", 0.25, [0.0] * 512))
        computed = [sent.spans.add("compute", 0, 1) for _ in range(512)]
        for each in computed:
            batches.computed(("m", 1, "s", 0.25), each)
        batches.close()
        await sent.close()
        (batch,) = [each for each in exporter.get_finished_spans() if each.name == "batch"]
        assert [each.context for each in batch.links] == computed[: SpanLimits().max_links]

    asyncio.run(main())


def test_without_traces_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys, app.server.server\n"
        "from pathlib import Path\n"
        "from app.config.settings import Settings\n"
        "from app.frontends.frontend.frontend_server import FrontendServer\n"
        "assert app.server.server.Server(Settings()).tracing is None\n"
        "assert FrontendServer(Settings(), Path('engine')).tracing is None\n"
        "assert not [each for each in sys.modules if each.startswith('opentelemetry')]\n"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0
