"""One contract for both ways of a request: by ASGI, as uvicorn does it, and by the fast path."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions, WorkConserving
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.events import BatchExecuted, Event, RequestFinished
from app.core.inference import Array, InferenceRequest, InferenceResponse, ModelSignature, TensorSpec
from app.core.interfaces import Cancellable
from app.core.reply import COMPLETED
from app.model import Model
from app.placement import RequestPlacement
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.rest import OpenInferenceRest
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.cors import EXPOSED_TO_ANY_ORIGIN, AllowAnyOrigin
from app.transports.http.exchange import Exchange, HttpProtocol, ReplyLater
from app.transports.http.head import RequestHead
from app.transports.http.replies import HttpLimits
from app.transports.http1.arrival_timer import LAST_READ_S
from app.transports.http1.direct.fast_path import FastPath
from app.transports.http1.limits import ConnectionLimits
from app.transports.http1.uvicorn_adapter import uvicorn_config
from app.transports.request_caller import CallerRule
from tests.support.fakes import FakeDevice, FakeLoadedModel, fake_time, run_in_fake_time
from tests.support.open_inference_world import FakeHealth
from tests.support.protocol_fakes import FakeRepository

MAX_BODY = 200_000
TIMEOUT_MS = 10_000.0
COMPUTE_S = 1.0

LIMITS = ConnectionLimits(keep_alive_s=5.0)

PREDICT = "/v1/models/m:predict"
INFER = "/v2/models/m/infer"
ROW = {"instances": [[1.0, 2.0]]}
V2_ROW = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}


class Transport(asyncio.Transport):
    """What a client would read; `paused` as long as the client does not read."""

    def __init__(self, protocol: asyncio.Protocol, address: str = "127.0.0.1") -> None:
        super().__init__({"sockname": ("127.0.0.1", 80), "peername": (address, 1234)})
        self._protocol: Any = protocol
        self.out = b""
        self.writes = 0
        self.closed = self.aborted = False
        self.reading = True
        self.unread = 0  # bytes that the socket does not take

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: Any) -> None:
        assert not self.closed
        self.writes += 1
        self.out += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """The client closes its side, too."""
        self.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def hear(self, data: bytes) -> None:
        """Gives the data to whatever protocol it has now."""
        self._protocol.data_received(data)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class World:
    """Connections to a server of one real model on a fake device; `connection` is the first of them.

    Args:
        inline_s: calls that take less are made on the event loop.
        timed: what calls take is known from the beginning.
    """

    def __init__(
        self,
        direct: bool,
        cors: bool = False,
        inline_s: float = 0.0,
        *,
        admission: bool = False,
        timed: bool = True,
        callers: str = "",
        limits: ConnectionLimits = LIMITS,
    ) -> None:
        self.events: list[Event] = []
        self.loaded = FakeLoadedModel()
        self.device = FakeDevice(COMPUTE_S)
        self.batcher = Batcher(
            [self.device],
            WorkConserving(),
            1000,
            self.events.append,
            fake_time,
            max_inline_s=inline_s,
            admission=admission,  # its verdict depends on the order of arrival; this suite compares ways to the model
        )
        warm_up = (
            {"serving_default": {32: COMPUTE_S}} if inline_s and timed else {}
        )  # so calls of all sizes are known to be quick
        placement = RequestPlacement("m", 1, self.loaded, BatchSizes.powers_of_two(32), costs=warm_up)
        self.model = Model(placement, self.batcher)
        self.repository = repository = cast(Any, FakeRepository(cast(Any, self.model)))
        http_limits = HttpLimits(MAX_BODY, TIMEOUT_MS, CallerRule.of(callers))
        statistics: Any = None
        served = OpenInference(repository, statistics, FakeHealth(), batching=lambda _: BatchingOptions())
        self.protocols: dict[str, HttpProtocol] = {
            "v1": TensorFlowRest(repository, self.events.append, http_limits, fake_time),
            "v2": OpenInferenceRest(served, self.events.append, http_limits, fake_time),
        }
        self._cors = cors
        fast_path = FastPath(self._find, EXPOSED_TO_ANY_ORIGIN if cors else [], fake_time)
        if direct:
            config = uvicorn_config(self._application, fast_path, limits, "localhost", 0)
        else:
            config = uvicorn.Config(self._application, http="httptools", log_config=None, interface="asgi3")
        config.load()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        kind: Any = config.http_protocol_class
        self._connect = partial(kind, config=config, server_state=self.state, app_state={})
        self.connection, self.transport = self.connect()

    def connect(self, address: str = "127.0.0.1") -> tuple[Any, Transport]:
        connection = self._connect()
        transport = Transport(connection, address)
        connection.connection_made(transport)
        return connection, transport

    def _find(self, path: str) -> HttpProtocol | None:
        return self.protocols.get(path.split("/", 2)[1])

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        protocol: Any = self._find(scope["path"])
        await (AllowAnyOrigin(protocol) if self._cors else protocol)(scope, receive, send)

    async def hear(self, *chunks: bytes | float) -> None:
        """Bytes of the client as they come, and seconds between them."""
        for chunk in chunks:
            if isinstance(chunk, float):
                await asyncio.sleep(chunk)
            elif not self.transport.closed:
                self.connection.data_received(chunk)

    @property
    def finished(self) -> list[RequestFinished]:
        return [event for event in self.events if isinstance(event, RequestFinished)]

    def told(self) -> list[tuple[object, ...]]:
        return [(event.protocol, event.code, event.model, event.version, event.signature) for event in self.finished]

    def replies(self, transport: Transport | None = None) -> list[tuple[int, dict[str, str], bytes]]:
        """Status, headers and body of each reply."""
        out = (transport or self.transport).out
        rest, found = out.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""), []
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            status, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            assert len(headers) == len(lines)
            length = int(headers["content-length"])
            found.append((int(status.split()[1]), headers, rest[:length]))
            rest = rest[length:]
        return found


def request(
    path: str = PREDICT,
    body: Any = ROW,
    headers: dict[str, str] | None = None,
    method: str = "POST",
    version: str = "1.1",
) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Host": "here", "Content-Length": str(len(content)), **(headers or {})}
    lines = [f"{method} {path} HTTP/{version}", *(f"{name}: {value}" for name, value in given.items() if value)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def played(direct: bool, chunks: Sequence[bytes | float], cors: bool = False) -> World:
    async def main() -> World:
        world = World(direct, cors)
        await world.hear(*chunks)
        await asyncio.sleep(3.5 * COMPUTE_S)
        return world

    return run_in_fake_time(main())


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


def test_the_caches_of_heads_are_bounded() -> None:
    async def main() -> None:
        world = World(True)
        for number in range(1100):
            await world.hear(request(body=b"{", headers={"X-Number": str(number)}), 0.0)
        await world.hear(request(body=b"{", headers={"X-Number": "x" * 3000}), 0.0)
        fast_path = world.connection._fast_path
        assert len(fast_path._parsed) == len(fast_path._heads) == 1024
        assert len(world.replies()) == 1101

    run_in_fake_time(main())


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


@pytest.mark.parametrize("path", [PREDICT, "/v1/nothing"])
def test_an_idle_connection_is_closed(path: str) -> None:
    """5 s after its last reply, whatever was asked before; not while a request is read or answered."""

    async def main() -> None:
        world = World(True)
        await world.hear(request(), 4.0, request(path), 4.0)
        late = request()
        await world.hear(late[:20], 20.0)
        assert not world.transport.closed
        await world.hear(late[20:], COMPUTE_S)
        assert len(world.replies()) == 3
        await asyncio.sleep(4.0)
        assert not world.transport.closed
        await asyncio.sleep(6.0)
        assert world.transport.closed

    run_in_fake_time(main())


@pytest.mark.parametrize(("before", "arrives"), [(b"", 20), (b"", -1), (b"x" * 20_000, -200)])
def test_a_connection_whose_request_does_not_arrive_is_closed(before: bytes, arrives: int) -> None:
    """However few bytes arrive now and then: of its head, its body, or a head so long that uvicorn reads it."""

    async def main() -> None:
        world = World(True)
        late = request(headers={"X-Before": before.decode()})[:arrives]
        await world.hear(late[:10], 30.0, late[10:-5], 15.0, late[-5:], 10.0)
        assert not world.transport.closed
        await asyncio.sleep(45.0)
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_connection_without_a_request_is_closed() -> None:
    async def main() -> None:
        world = World(True)
        await asyncio.sleep(59.0)
        assert not world.transport.closed
        await asyncio.sleep(2.0)
        assert world.transport.closed

    run_in_fake_time(main())


CHUNKS = {"Content-Length": "", "Transfer-Encoding": "chunked"}


def slowly(data: bytes, piece: int, seconds: float = 1.0) -> list[bytes | float]:
    """The data in pieces of so many bytes, each of which takes so many seconds."""
    return [each for at in range(0, len(data), piece) for each in (data[at : at + piece], seconds)]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("bytes_per_s", "seconds"), [(1200, 0), (512, 120), (1, 60)])
def test_a_body_has_a_least_rate(chunked: bool, bytes_per_s: int, seconds: int) -> None:
    """1,024 bytes a second after a minute of grace: at half of that rate it may take two minutes."""

    async def main() -> None:
        world = World(True, limits=replace(LIMITS, min_body_bytes_per_s=1024))
        body = json.dumps(ROW).encode().ljust(180 * 1024)
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
        late = request(body=body, headers=CHUNKS if chunked else {})
        head = late[: -len(body)]
        pieces = slowly(body, bytes_per_s)
        in_time = 2 * (seconds - 2) if seconds else len(pieces)
        await world.hear(head, *pieces[:in_time])
        assert not world.transport.closed
        await world.hear(*pieces[in_time : in_time + 10])
        assert [status for status, _, _ in world.replies()] == [408 if seconds else 504]  # its deadline has passed

    run_in_fake_time(main())


@pytest.mark.parametrize("chunked", [False, True])
def test_bytes_that_came_quickly_earn_no_time_for_later(chunked: bool) -> None:
    async def main() -> None:
        world = World(True, limits=replace(LIMITS, min_body_bytes_per_s=1024))
        late = request(body=b"", headers=CHUNKS if chunked else {"Content-Length": "190000"})
        await world.hear(late, (b"2e630\r\n" if chunked else b"") + b" " * 150_000, 0.1, b" ", 58.0)
        assert not world.transport.closed
        await asyncio.sleep(3.0)
        assert [status for status, _, _ in world.replies()] == [408]
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_request_that_waited_in_the_socket_while_the_loop_was_held_up_is_answered() -> None:
    """The loop runs the timer that is due, then it reads."""

    async def main() -> None:
        world = World(True)
        await world.hear(request(), COMPUTE_S, 5.0 + LAST_READ_S / 2, request(), COMPUTE_S)
        assert len(world.replies()) == 2
        await asyncio.sleep(4.9)
        assert not world.transport.closed
        await asyncio.sleep(0.2)
        assert world.transport.closed

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


def sent_at_once(
    direct: bool, requests: Sequence[bytes], change: Callable[[World], None] = lambda _: None
) -> tuple[World, list[list[tuple[int, dict[str, str], bytes]]]]:
    """Each from a client of its own, all readable at once, to a model that is known to be quick."""

    async def main() -> tuple[World, list[list[tuple[int, dict[str, str], bytes]]]]:
        world = World(direct, inline_s=2 * COMPUTE_S)
        change(world)
        await world.hear(request(), 2 * COMPUTE_S)  # requests are not coalesced before the first
        del world.events[:], world.loaded.function.calls[:]
        clients = [world.connect() for _ in requests]
        for (connection, _), each in zip(clients, requests, strict=True):
            connection.data_received(each)
        await asyncio.sleep(4 * COMPUTE_S)
        return world, [world.replies(transport) for _, transport in clients]

    return run_in_fake_time(main())


def rows(*values: float, **headers: str) -> bytes:
    return request(body={"instances": [[value, 0.0] for value in values]}, headers=headers)


def untimed(replies: list[tuple[int, dict[str, str], bytes]]) -> list[object]:
    """Whom a request shares a call with is a matter of the way it took, and so is what Server-Timing says."""
    return [
        (status, {name: value for name, value in headers.items() if name != "server-timing"}, body)
        for status, headers, body in replies
    ]


@given(
    st.lists(
        st.one_of(
            st.lists(st.floats(0, 100, width=16), min_size=1, max_size=9).map(lambda values: rows(*values)),
            st.lists(st.floats(0, 100, width=16), min_size=1, max_size=3).map(lambda values: rows(*values, Other="1")),
            # Who fails a whole batch does so to whoever shares it, which is a matter of time.
            st.sampled_from([CASES[name] for name in CASES if name != "model fails"]),
        ),
        max_size=12,
    )
)
def test_coalesced_requests_are_answered_as_if_alone(requests: list[bytes]) -> None:
    by_asgi, expected = sent_at_once(False, requests)
    direct, replies = sent_at_once(True, requests)
    assert list(map(untimed, replies)) == list(map(untimed, expected))
    assert sorted(direct.told()) == sorted(by_asgi.told())


def answer_ragged(world: World) -> None:
    """The model repeats the first number of each row as often as the second one says."""

    def run(_: str, inputs: Mapping[str, Any], __: tuple[str, ...]) -> dict[str, Any]:
        x = inputs["x"].astype(int)
        return {"y": np.repeat(x[:, 0], x[:, 1]), "y_1": np.cumsum([0, *x[:, 1]])}

    world.loaded.run = run  # type: ignore[method-assign]  # of a fake
    outputs = {name: TensorSpec(name, np.dtype(np.int64), (None,)) for name in ("y", "y_1")}
    known = world.loaded.signatures["serving_default"]
    signature = replace(known, outputs=outputs, ragged_outputs={"y": ("y_1",)})
    cast(dict[str, ModelSignature], world.loaded.signatures)["serving_default"] = signature


def test_ragged_answers_are_not_cut_by_the_rows_of_coalesced_requests() -> None:
    requests = [request(body={"instances": rows}) for rows in ([[7, 2]], [[8, 0], [9, 3]], [[5, 1]])]
    _, expected = sent_at_once(False, requests, answer_ragged)
    _, replies = sent_at_once(True, requests, answer_ragged)
    assert [status for ((status, _, _),) in expected] == [200, 200, 400]
    assert list(map(untimed, replies)) == list(map(untimed, expected))


def batches(world: World) -> list[BatchExecuted]:
    return [event for event in world.events if isinstance(event, BatchExecuted)]


def test_coalesced_requests_share_one_call() -> None:
    world, replies = sent_at_once(True, [rows(1.0), rows(2.0, 3.0), rows(4.0)])
    assert [json.loads(body)["predictions"] for ((_, _, body),) in replies] == [
        [[2.0, 0.0]],
        [[4.0, 0.0], [6.0, 0.0]],
        [[8.0, 0.0]],
    ]
    assert world.loaded.function.calls == [[1.0, 2.0, 3.0, 4.0]]
    (batch,) = batches(world)
    assert (batch.rows, batch.padded_rows, len(batch.queue_s), batch.failed) == (4, 0, 3, 0)


def test_each_coalesced_request_has_the_timing_of_that_call() -> None:
    _, replies = sent_at_once(True, [rows(1.0), rows(2.0, 3.0), rows(4.0)])
    timings = {headers["server-timing"] for ((_, headers, _),) in replies}
    assert timings == {'queue;dur=0.000, compute;dur=0.000, batch;desc="4"'}  # no time passes in a call on the loop


def test_requests_with_a_priority_are_not_coalesced() -> None:
    urgent = [request(body={"instances": [[value, 0.0]]}, headers={"X-Request-Priority": "1"}) for value in (3.0, 4.0)]
    world, replies = sent_at_once(True, [urgent[0], rows(1.0), rows(2.0), urgent[1]])
    assert [json.loads(body)["predictions"] for ((_, _, body),) in replies] == [
        [[6.0, 0.0]], [[2.0, 0.0]], [[4.0, 0.0]], [[8.0, 0.0]]
    ]  # fmt: skip
    assert world.loaded.function.calls == [[1.0, 2.0], [3.0, 4.0]]


def test_requests_with_a_time_out_of_their_own_are_not_coalesced_and_keep_it() -> None:
    wrong = [rows(value, **{"X-Request-Timeout-Ms": "soon"}) for value in (1.0, 2.0)]
    world, replies = sent_at_once(True, [*wrong, rows(3.0), rows(4.0)])
    assert [status for ((status, _, _),) in replies] == [400, 400, 200, 200]
    assert world.loaded.function.calls == [[3.0, 4.0]]

    async def main() -> None:
        world = World(True, inline_s=2 * COMPUTE_S)
        await world.hear(rows(1.0), 2 * COMPUTE_S)
        clients = [world.connect() for _ in range(2)]
        for value, (connection, _) in enumerate(clients):
            slow = rows(5.0 + value, **{"X-Request-Timeout-Ms": "1"})
            connection.data_received(slow[:-3])
        await asyncio.sleep(2e-3)
        for connection, _ in clients:
            connection.data_received(slow[-3:])
        await asyncio.sleep(COMPUTE_S)
        assert [world.replies(transport)[0][0] for _, transport in clients] == [504, 504]
        assert world.loaded.function.computed == [1.0]

    run_in_fake_time(main())


def test_more_coalesced_rows_than_a_batch_take_several_calls() -> None:
    world, replies = sent_at_once(True, [rows(*[float(n)] * 9) for n in range(8)])
    assert [len(json.loads(body)["predictions"]) for ((_, _, body),) in replies] == [9] * 8
    assert [batch.rows for batch in batches(world)] == [27, 27, 18]


def test_an_invalid_request_is_rejected_apart_from_those_coalesced_with_it() -> None:
    _, replies = sent_at_once(True, [rows(1.0), rows(-2.0), rows(3.0), request(body={"instances": [[1.0]]})])
    assert [status for ((status, _, _),) in replies] == [200, 400, 200, 400]


def test_a_failure_of_the_model_fails_those_of_its_call() -> None:
    world, replies = sent_at_once(True, [rows(1.0), CASES["model fails"].replace(b"[[NaN, 2.0]]", b"[[9e99,2.0]]")])
    assert [status for ((status, _, _),) in replies] == [200, 400]  # out of range: never computed
    assert not any(batch.failed for batch in batches(world))


async def beside_a_slow_body(seconds: float) -> tuple[World, list[Transport]]:
    """Two requests of the value 2 come with the end of one of the value 5, whose body takes so long."""
    world = World(True, inline_s=2 * COMPUTE_S)
    await world.hear(rows(1.0), 2 * COMPUTE_S)
    world.loaded.function.calls.clear()
    clients = [world.connect() for _ in range(3)]
    slow = rows(5.0)
    clients[0][0].data_received(slow[:-3])
    await asyncio.sleep(seconds)
    clients[0][0].data_received(slow[-3:])
    for connection, _ in clients[1:]:
        connection.data_received(rows(2.0))
    return world, [transport for _, transport in clients]


def test_a_request_whose_deadline_passes_while_its_body_arrives_is_not_computed() -> None:
    async def main() -> None:
        world, transports = await beside_a_slow_body(TIMEOUT_MS / 1e3)
        await asyncio.sleep(COMPUTE_S)
        assert [world.replies(transport)[0][0] for transport in transports] == [504, 200, 200]
        assert 5.0 not in world.loaded.function.computed

    run_in_fake_time(main())


def test_a_request_whose_body_comes_slowly_does_not_shorten_the_time_of_others() -> None:
    async def main() -> None:
        world, _ = await beside_a_slow_body(TIMEOUT_MS / 1e3 - COMPUTE_S / 2)
        await asyncio.sleep(0)
        assert [2.0, 2.0] in world.loaded.function.calls

    run_in_fake_time(main())


@pytest.mark.parametrize("values", [2, 2**15, 2**16 + 1])
def test_of_coalesced_requests_those_with_long_replies_are_answered_by_a_thread(values: int) -> None:
    async def main() -> None:
        world = World(True, inline_s=2 * COMPUTE_S)

        def run(_: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            return {"y": np.repeat(inputs["x"][:, :1], values, axis=1)}

        cast(Any, world.loaded).run = run
        await world.hear(rows(1.0), 2 * COMPUTE_S)
        clients = [world.connect() for _ in range(3)]
        world.connection.tasks.clear()  # of all connections
        for value, (connection, _) in enumerate(clients):
            connection.data_received(rows(value))
        await asyncio.sleep(0)
        writing = list(world.connection.tasks)
        assert len(writing) == (3 if values > 2**16 else 0)
        await asyncio.gather(*writing)
        for value, (_, transport) in enumerate(clients):
            assert json.loads(world.replies(transport)[0][2])["predictions"] == [[value] * values]

    run_in_fake_time(main())


def test_a_bug_in_coalescing_loses_no_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Remote):
        def submit_coalesced(self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Any) -> Any:
            raise ZeroDivisionError

    async def main() -> None:
        world = World(True)
        broken: Any = Broken(world.model)
        world.repository.models["m", 1] = broken
        clients = [world.connect() for _ in range(3)]
        for connection, _ in clients:
            connection.data_received(rows(2.0))
        await asyncio.sleep(2 * COMPUTE_S)
        assert [world.replies(transport)[0][0] for _, transport in clients] == [200] * 3

    run_in_fake_time(main())
    assert "A bug kept 3 requests from being coalesced" in caplog.text


def test_requests_queue_while_another_call_runs() -> None:
    async def main() -> None:
        world = World(True, inline_s=2 * COMPUTE_S, timed=False)
        clients = [world.connect() for _ in range(3)]
        for connection, _ in clients:
            connection.data_received(rows(1.0))  # nobody knows yet how long it takes
        await asyncio.sleep(0.1)
        late = [world.connect() for _ in range(2)]
        for connection, _ in late:
            connection.data_received(rows(2.0))
        await asyncio.sleep(0.1)
        assert world.batcher.queue.rows == 2
        await asyncio.sleep(2 * COMPUTE_S)
        assert [len(world.replies(transport)) for _, transport in clients + late] == [1] * 5

    run_in_fake_time(main())


class Remote:
    """A model behind another process: what joins is submitted as one request, and answered later."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def coalescable_rows(self, signature: str) -> int:
        return self._model.sizes.largest

    def submit_coalesced(self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Any) -> Cancellable:
        try:
            return self._model.submit(request, reply)
        except ServingError as error:
            reply.set_exception(error)
            return COMPLETED


def to_another_process(
    requests: Sequence[bytes],
    gone: Sequence[int] = (),
    *,
    drain: bool = False,
    callers: str = "",
    addresses: Sequence[str] = (),
) -> tuple[World, list[int]]:
    """The status of each; 0 for none."""

    async def main() -> tuple[World, list[int]]:
        world = World(True, callers=callers)
        remote: Any = Remote(world.model)
        world.repository.models["m", 1] = remote
        clients = [world.connect(*addresses[number : number + 1]) for number in range(len(requests))]
        if drain:
            world.batcher.begin_drain()
        for (connection, _), each in zip(clients, requests, strict=True):
            connection.data_received(each)
        await asyncio.sleep(0.1)
        for number in gone:
            clients[number][0].connection_lost(None)
        await asyncio.sleep(6 * COMPUTE_S)
        replies = [world.replies(transport) for _, transport in clients]
        return world, [each[0][0] if each else 0 for each in replies]

    return run_in_fake_time(main())


def test_requests_to_another_process_are_coalesced() -> None:
    world, codes = to_another_process([rows(float(n)) for n in range(5)])
    assert codes == [200] * 5
    assert [batch.rows for batch in batches(world)] == [5]
    assert [len(batch.queue_s) for batch in batches(world)] == [1]


def test_requests_of_different_callers_are_not_coalesced_where_these_are_told_apart() -> None:
    addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.2"]
    world, codes = to_another_process([rows(float(n)) for n in range(5)], callers="address", addresses=addresses)
    assert codes == [200] * 5
    assert [(batch.rows, len(batch.queue_s)) for batch in batches(world)] == [(5, 2)]


def test_a_rejection_from_there_lets_each_begin_alone() -> None:
    _, codes = to_another_process([rows(1.0), rows(-1.0), rows(2.0)])
    assert codes == [200, 400, 200]


def test_an_error_of_all_coalesced_requests_is_the_reply_to_each() -> None:
    _, codes = to_another_process([rows(1.0), rows(2.0)], drain=True)
    assert codes == [503, 503]


def test_a_coalesced_request_whose_client_disconnected_gets_no_reply() -> None:
    world, codes = to_another_process([rows(1.0), rows(2.0), rows(3.0)], gone=[1])
    assert codes == [200, 0, 200]
    assert sorted(event.code for event in world.finished) == ["200", "200", "499"]


def test_coalesced_requests_that_are_all_cancelled_are_never_computed() -> None:
    async def main() -> None:
        world = World(True)
        remote: Any = Remote(world.model)
        world.repository.models["m", 1] = remote
        first, _ = world.connect()
        first.data_received(rows(1.0))
        await asyncio.sleep(0.1)
        clients = [world.connect()[0] for _ in range(2)]
        for connection in clients:
            connection.data_received(rows(2.0))
        await asyncio.sleep(0.1)
        clients[0].connection_lost(None)
        assert world.batcher.queue.rows == 2
        clients[1].connection_lost(None)
        assert world.batcher.queue.rows == 0
        await asyncio.sleep(2 * COMPUTE_S)
        assert 2.0 not in world.loaded.function.computed

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
