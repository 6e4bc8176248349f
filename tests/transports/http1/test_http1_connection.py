"""One contract for both ways of a request: by ASGI, as uvicorn does it, and by the fast path."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import weakref
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import Array, InferenceRequest, InferenceResponse
from app.transports.http.exchange import Exchange
from app.transports.http.head import RequestHead
from app.transports.http.late_replies import ReplyLater
from tests.support.fakes import fake_time, run_in_fake_time
from tests.transports.http1.connection_world import (
    COMPUTE_S,
    INFER,
    MAX_BODY,
    PREDICT,
    ROW,
    V2_ROW,
    World,
    played,
    request,
)


def assert_same(*chunks: bytes | float, cors: bool = False) -> World:
    """By both ways the client reads the same and listeners hear the same. Returns the world of the fast path."""
    by_asgi, direct = played(False, chunks, cors), played(True, chunks, cors)
    assert direct.replies() == by_asgi.replies()
    assert direct.transport.closed == by_asgi.transport.closed
    assert direct.transport.closed or direct.transport.reading == by_asgi.transport.reading
    assert direct.told() == by_asgi.told()
    assert str(direct.loaded.function.calls) == str(by_asgi.loaded.function.calls)  # NaN is not NaN
    return direct


BARE = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "0"}
BINARY = np.array([[1.0, 2.0]], np.float32).tobytes()

CASES = {
    "rows": request(),
    "columns": request(body={"inputs": [[1.0, 2.0], [3.0, 4.0]]}),
    "version": request("/v1/models/m/versions/1:predict"),
    "upper case": request("/v1/models/m:PREDICT"),
    "escaped": request("/v1/models/%6D:predict"),
    "signature": request(body={"signature_name": "pair", "instances": [{"x": [1, 2], "z": [3, 4]}]}),
    "runs alone": request(body={"signature_name": "total", "inputs": 1.0}),
    "more than a batch": request(body={"instances": [[float(n), 0.0] for n in range(70)]}),
    "no rows": request(body={"inputs": []}),
    "query": request(PREDICT + "?signature_name=serving_default&output=y"),
    "bad query": request(PREDICT + "?output=none"),
    "fragment": request(PREDICT + "#here"),
    "whole URL": request("http://here" + PREDICT),
    "no JSON": request(body=b"{"),
    "no body": request(body=b""),
    "no length": request(body=b"", headers={"Content-Length": ""}),
    "wrong shape": request(body={"instances": [[1.0]]}),
    "rejected value": request(body={"instances": [[-1.0, 2.0]]}),
    "model fails": request(body=b'{"instances": [[NaN, 2.0]]}'),
    "no such model": request("/v1/models/none:predict"),
    "no such version": request("/v1/models/m/versions/9:predict"),
    "no such path": request("/v1/nothing"),
    "other path": request("/v1/models/m", method="GET", body=b""),
    "wrong method": request(method="GET", body=b""),
    "content type": request(headers={"Content-Type": "text/html"}),
    "accept": request(headers={"Accept": "text/html"}),
    "npy": request(headers={"Accept": "application/x-npy"}),
    "timeout": request(headers={"X-Request-Timeout-Ms": "200"}),
    "no timeout": request(headers={"X-Request-Timeout-Ms": "soon"}),
    "priority": request(headers={"X-Request-Priority": "1"}),
    "default priority": request(headers={"X-Request-Priority": "0"}),
    "no priority": request(headers={"X-Request-Priority": "high"}),
    "empty priority": request(headers={"X-Request-Priority": " "}),
    "too large": request(body=b" " * (MAX_BODY + 1)),
    "announced too large": request(body=b"", headers={"Content-Length": str(MAX_BODY + 1)}),
    "as large as may be": request(body=json.dumps(ROW).encode().ljust(MAX_BODY)),
    "compressed": request(body=gzip.compress(json.dumps(ROW).encode()), headers={"Content-Encoding": "gzip"}),
    "not compressed": request(headers={"Content-Encoding": "gzip"}),
    "unknown encoding": request(headers={"Content-Encoding": "br"}),
    "chunked": request(
        body=b'5\r\n{"ins\r\n13\r\ntances": [[1.0, 2.0\r\n3\r\n]]}\r\n0\r\n\r\n',
        headers={"Content-Length": "", "Transfer-Encoding": "chunked"},
    ),
    "expect": request(headers={"Expect": "100-continue"}),
    "expect and more": request(headers={"Expect": "100-continue", "Content-Encoding": "identity"}),
    "close": request(headers={"Connection": "close"}),
    "HTTP 1.0": request(version="1.0"),
    "infer": request(INFER, V2_ROW),
    "infer binary": request(INFER, BINARY, BARE),
    "infer compressed": request(
        INFER,
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [90, 2], "data": [1.0] * 180}]},
        {"Accept-Encoding": "gzip"},
    ),
    "infer, little to compress": request(INFER, V2_ROW, {"Accept-Encoding": "gzip, deflate"}),
    "infer timeout": request(INFER, V2_ROW, {"X-Request-Timeout-Ms": "200"}),
    "infer priority": request(INFER, V2_ROW, {"X-Request-Priority": "1"}),
    "infer no priority": request(INFER, V2_ROW, {"X-Request-Priority": "-1"}),
    "infer wrong": request(INFER, {"inputs": []}),
    "infer no model": request("/v2/models/none/infer", V2_ROW),
    "infer wrong method": request(INFER, b"", method="GET"),
    "ready": request("/v2/models/m/ready", b"", method="GET"),
    "classify": request("/v1/models/m:classify", {"examples": [{}]}),
    "long URL": request(PREDICT + "?" + "x" * 5000),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ways_answer_the_same(case: str) -> None:
    assert assert_same(CASES[case]).replies()


@pytest.mark.parametrize("case", CASES)
def test_both_ways_answer_the_same_again_when_the_head_is_cached(case: str) -> None:
    world = assert_same(CASES[case], 3.5 * COMPUTE_S, CASES[case])
    if not world.transport.closed:
        first, second = world.replies()
        assert first == second


def test_a_cached_head_gets_exactly_its_own_body() -> None:
    one, two = request(body=b'{"instances": [[1.0, 2.0]]}'), request(body=b'{"instances": [[3.0, 4.0]]}')
    known = [one, 3.0]
    assert_same(*known, one[:-5], 0.2, one[-5:])
    assert_same(*known, one + two)
    assert_same(*known, one, one, two)
    assert [status for status, _, _ in played(True, [*known, two, 3.0, one[:30], two]).replies()] == [200, 200, 400]
    world = assert_same(*known, two, 3.0, one)
    assert [json.loads(body)["predictions"][0][0] for _, _, body in world.replies()] == [2.0, 6.0, 2.0]


@pytest.mark.parametrize("cut", [0, 3, 30, 100, 150])
def test_an_upgrade_is_ignored_and_the_body_stays_a_body(cut: int) -> None:
    """As Java's HttpClient asks by default. uvicorn alone takes the body for the next request."""
    asking = request(headers={"Connection": "Upgrade, HTTP2-Settings", "uPgrade": "h2c", "HTTP2-Settings": "AAEAAEAA"})
    chunked = request(
        body=b"1b\r\n" + json.dumps(ROW).encode() + b"\r\n0\r\n\r\n",
        headers={"Upgrade": "h2c", "Connection": "Upgrade", "Content-Length": "", "Transfer-Encoding": "chunked"},
    )
    status = request("/v2/models/m/ready", b"", {"Upgrade": "websocket", "Connection": "Upgrade"}, "GET")
    world = played(True, [asking[:cut], asking[cut:], 1.5, status, 0.1, chunked, 1.5, asking + request(), 1.5])
    assert [status for status, _, _ in world.replies()] == [200] * 5
    assert [body for _, _, body in world.replies() if b"predictions" in body] == [b'{"predictions":[[2.0,4.0]]}'] * 4


def test_a_malformed_request_behind_another_is_rejected_after_the_reply_to_that_one() -> None:
    """uvicorn alone writes the 400 first, so that the client takes it for the reply to its first request."""
    world = played(True, [request(), 0.2, b"hello\r\n\r\n"])
    assert [status for status, _, _ in world.replies()] == [200, 400]
    assert world.transport.closed


@pytest.mark.parametrize("case", ["rows", "no JSON", "infer", "no such path", "chunked"])
def test_both_ways_mark_replies_for_any_origin(case: str) -> None:
    for _, headers, _ in assert_same(CASES[case], cors=True).replies():
        assert headers["access-control-allow-origin"] == "*"


@given(st.data())
def test_replies_do_not_depend_on_how_bytes_are_cut(data: st.DataObject) -> None:
    names = data.draw(
        st.lists(st.sampled_from(["rows", "columns", "no JSON", "chunked", "infer", "other path"]), max_size=4)
    )
    stream = b"".join(CASES[name] for name in names)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    waits = data.draw(st.lists(st.sampled_from([0.0, 0.3, 0.6]), min_size=len(chunks), max_size=len(chunks)))
    script = [each for pair in zip(chunks, waits, strict=True) for each in pair if each != b""]
    direct = played(True, [*script, 9.0])
    assert [status for status, _, _ in direct.replies()] == [400 if name == "no JSON" else 200 for name in names]


def test_pipelined_requests_are_answered_in_order() -> None:
    rows = [request(body={"instances": [[float(n), 0.0]]}) for n in range(5)]
    world = assert_same(b"".join(rows), 9.0)
    assert [json.loads(body)["predictions"][0][0] for _, _, body in world.replies()] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_the_fast_path_writes_once() -> None:
    assert played(True, [request()]).transport.writes == 1
    assert played(False, [request()]).transport.writes == 2


def test_the_request_of_a_client_that_disconnects_is_cancelled() -> None:
    async def main() -> None:
        for direct in (False, True):
            world = World(direct)
            occupying = asyncio.create_task(world.model.infer(_request(7.0)))
            await asyncio.sleep(0.1)
            await world.hear(request(), 0.2)
            world.connection.connection_lost(None)
            await asyncio.sleep(0.2)
            assert world.batcher.queue.rows == 0
            assert [event.code for event in world.finished] == ["499"]
            await occupying
            await asyncio.sleep(COMPUTE_S)
            assert world.loaded.function.computed == [7.0]
            assert not world.replies()

    run_in_fake_time(main())


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("path", [PREDICT, INFER])
def test_a_request_with_priority_overtakes(direct: bool, path: str) -> None:
    def full_batch(value: float, **headers: str) -> bytes:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        if path == PREDICT:
            return request(body={"instances": [[value, 0.0]] * 32}, headers=named)
        data = {"name": "x", "datatype": "FP32", "shape": [32, 2], "data": [value, 0.0] * 32}
        return request(INFER, {"inputs": [data]}, named)

    async def main() -> None:
        world = World(direct)
        occupying = asyncio.create_task(world.model.infer(_request(7.0)))
        await asyncio.sleep(0.1)
        for content in (full_batch(1.0), full_batch(2.0, X_Request_Priority="1"), full_batch(3.0)):
            world.connect()[0].data_received(content)
            await asyncio.sleep(0.1)
        await asyncio.sleep(4 * COMPUTE_S)
        await occupying
        assert world.loaded.function.computed == [7.0, 2.0, 1.0, 3.0]

    run_in_fake_time(main())


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("path", [PREDICT, INFER])
@pytest.mark.parametrize(
    ("callers", "told"),
    [
        ("", ["", "", ""]),
        ("address", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ("header:X-Api-Key", ["x-api-key: blue", "10.0.0.2", "x-api-key: blue"]),
    ],
)
def test_who_sent_a_request_is_told_to_the_batcher(direct: bool, path: str, callers: str, told: list[str]) -> None:
    async def main() -> None:
        world = World(direct, callers=callers)
        occupying = asyncio.create_task(world.model.infer(_request(7.0)))
        await asyncio.sleep(0.1)
        for number, headers in ((1, {"X-Api-Key": "blue"}), (2, {}), (3, {"x-api-key": "blue"})):
            content = request(headers=headers) if path == PREDICT else request(INFER, V2_ROW, headers)
            world.connect(f"10.0.0.{number}")[0].data_received(content)
            await asyncio.sleep(0.1)
        (lane,) = world.batcher.queue.lanes
        assert [each.caller for each in lane] == told
        await occupying

    run_in_fake_time(main())


def test_the_time_of_a_request_is_told() -> None:
    async def main() -> None:
        for direct in (False, True):
            world = World(direct)
            occupying = asyncio.create_task(world.model.infer(_request(7.0)))
            await asyncio.sleep(0.25)
            await world.hear(request(body={"instances": [[1.0, 2.0]] * 3}), 2 * COMPUTE_S, request(body=b"{"), 0.1)
            (_, headers, _), (_, rejected, _) = world.replies()
            assert headers["server-timing"] == 'queue;dur=750.000, compute;dur=1000.000, batch;desc="3"'
            assert "server-timing" not in rejected
            await occupying

    run_in_fake_time(main())


def test_a_client_that_leaves_during_its_computation_is_counted_as_499() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request(), 0.5)
        world.connection.connection_lost(None)
        await asyncio.sleep(2 * COMPUTE_S)
        assert [event.code for event in world.finished] == ["499"]
        assert not world.batcher.failures(1.0)

    run_in_fake_time(main())


def test_a_part_that_fails_takes_the_rest_of_a_large_request_along() -> None:
    rows = [[-1.0, 0.0]] + [[5.0, 0.0]] * 69
    world = assert_same(request(body={"instances": rows}))
    assert world.replies()[0][0] == 400
    assert world.batcher.queue.rows == 0


def test_a_connection_that_is_shut_down_answers_and_closes() -> None:
    async def main() -> None:
        for direct in (False, True):
            world = World(direct)
            await world.hear(request(), 0.2)
            world.connection.shutdown()
            await asyncio.sleep(COMPUTE_S)
            ((status, headers, _),) = world.replies()
            assert (status, headers["connection"]) == (200, "close")
            assert world.transport.closed

    run_in_fake_time(main())


def test_while_draining_the_connection_is_closed() -> None:
    async def main() -> None:
        for direct in (False, True):
            world = World(direct)
            world.batcher.begin_drain()
            await world.hear(request(), 0.1)
            ((status, headers, _),) = world.replies()
            assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
            assert world.transport.closed

    run_in_fake_time(main())


def test_a_reply_waits_for_a_client_that_does_not_read() -> None:
    async def main() -> None:
        world = World(True)
        world.connection.pause_writing()
        await world.hear(request(), 3.0)
        assert not world.replies()
        world.connection.resume_writing()
        await asyncio.sleep(0.1)
        assert len(world.replies()) == 1

    run_in_fake_time(main())


@pytest.mark.parametrize(("name", "path", "body"), [("v1", PREDICT, ROW), ("v2", INFER, V2_ROW)])
def test_a_long_reply_is_written_in_a_thread_and_is_the_same(name: str, path: str, body: Any) -> None:
    async def main() -> None:
        protocol = World(True).protocols[name]
        head = RequestHead("POST", path, b"", [(b"content-type", b"application/json")])
        computation = protocol.begin(Exchange(head, fake_time()), json.dumps(body).encode())

        def reply(values: Array) -> Any:
            return computation.reply(InferenceResponse({"y": values}, "m", 1, "serving_default"))

        values = np.linspace(-1, 1, 2**16 + 2, dtype=np.float32).reshape(-1, 2)
        long = reply(values)
        assert isinstance(long, ReplyLater)
        text = b"".join((await long.written).pieces)
        short = [b"".join(reply(part).pieces) for part in np.split(values, 3)]
        assert [number for each in short for number in _numbers(each)] == _numbers(text) == values.ravel().tolist()

    asyncio.run(main())


def _numbers(reply: bytes) -> list[float]:
    document = json.loads(reply)
    if "outputs" in document:
        numbers: list[float] = document["outputs"][0]["data"]
        return np.float32(numbers).tolist()
    return np.float32(document["predictions"]).ravel().tolist()


def test_a_bug_is_told_to_the_log_and_not_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = World(True)
        signature: Any = world.loaded.signatures["serving_default"]
        signature.outputs["y"] = None
        await world.hear(request(), 2 * COMPUTE_S)
        ((status, _, body),) = world.replies()
        assert (status, body) == (500, b'{"error":"Internal error"}')

    run_in_fake_time(main())
    assert "A bug answered POST /v1/models/m:predict" in caplog.text


def test_the_date_header_is_that_of_uvicorn() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request(), 2.0)
        world.state.default_headers = [(b"date", b"tomorrow")]
        await world.hear(request(), 2.0)
        assert [headers["date"] for _, headers, _ in world.replies()] == ["today", "tomorrow"]
        assert world.state.total_requests == 2

    run_in_fake_time(main())


def _request(value: float) -> InferenceRequest:
    return InferenceRequest({"x": np.full((1, 2), value, np.float32)})


def test_a_reply_that_cannot_be_written_closes_its_connection_and_harms_no_neighbour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        world = World(True)
        clients = [world.connect() for _ in range(3)]
        for connection, _ in clients:
            connection.data_received(request())

        def fails(*_: object) -> None:
            raise RuntimeError("the socket failed")

        broken, early = clients[0][1], clients[1]
        broken.write = broken.writelines = fails  # type: ignore[method-assign]  # as a socket may
        early[0]._answered = fails
        await asyncio.sleep(3.5 * COMPUTE_S)
        assert [transport.aborted for _, transport in clients] == [True, True, False]
        assert [status for status, *_ in world.replies(clients[2][1])] == [200]
        await world.batcher.drain()
        assert [event.code for event in world.finished].count("200") == 2  # the first was lost on its way out

    run_in_fake_time(main())
    assert caplog.text.count("could not be written") == 2


@pytest.mark.parametrize(
    "chunks",
    [
        [request()[:20]],
        [request()[:-5]],
        [request()],
        [request(headers={"Expect": "100-continue"})[:-5], 0.1],
        [request(body=b'5\r\n{"ins\r\n', headers={"Content-Length": "", "Transfer-Encoding": "chunked"}), 0.1],
        [request(headers={"Content-Encoding": "identity"}), 0.1],
    ],
    ids=["in the head", "in the body", "waiting", "in the body, by ASGI", "in a chunk, by ASGI", "waiting, by ASGI"],
)
def test_a_client_that_leaves_leaves_nothing_in_memory(chunks: list[bytes | float]) -> None:
    """What it sent is freed with its connection: the collector, which comes seldom, is not waited for."""

    async def main() -> None:
        world = World(True)
        await world.hear(*chunks)
        asgi, head = world.connection._asgi, world.connection._head
        held = [weakref.ref(each) for each in (world.connection, asgi, head) if each]
        gc.collect()
        gc.disable()
        world.connection.connection_lost(None)
        world.transport._protocol = cast(Any, None)  # as transports do
        del world.connection, world.transport, asgi, head
        await asyncio.sleep(3.5 * COMPUTE_S)
        assert [each() for each in held] == [None] * len(held)

    try:
        run_in_fake_time(main())
    finally:
        gc.enable()
