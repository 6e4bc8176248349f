"""After a request was rejected because it would be late, requests with the same head are rejected without parsing their
bodies, for a moment."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.access.access import Access
from app.access.access_file import AccessFile, digest_of
from app.access.rules import Permission, Principal, Rules
from app.core.errors import WouldBeLate
from app.core.events import RequestsRefused
from app.transports.http.rejections import BinaryOutline, JsonOutline, Rejection, json_outline
from tests.support.fakes import fake_time, run_in_fake_time
from tests.transports.http1.connection_world import COMPUTE_S, INFER, World, request

TIMEOUT = {"X-Request-Timeout-Ms": "2500"}
ROWS = {"instances": [[1.0, 2.0]] * 20}
SIZE = len(json.dumps(ROWS))
V1 = request(body=ROWS, headers=TIMEOUT)


TWO_ROWS = b'{"signature_name": "f", "instances": [[1, 2], [3, 4]]}'


def rejection(retry_after_s: float, spent_s: float = 0.0) -> Rejection:
    error = WouldBeLate("late")
    error.retry_after_s = retry_after_s
    outline = JsonOutline.of(TWO_ROWS)
    assert outline is not None
    made = Rejection.of(error, outline, 5.0, ("m", 1, "f"), spent_s)
    assert made is not None
    return made


@pytest.mark.parametrize(
    "body",
    [
        TWO_ROWS,
        TWO_ROWS.replace(b"1", b"1.5e3"),
        TWO_ROWS.replace(b"[1", b"[0,0],[1"),
        TWO_ROWS.replace(b": [[", b":\n[["),
        TWO_ROWS.replace(b"1", b"x"),  # it would be rejected for another reason
    ],
)
def test_a_rejection_applies_to_a_body_that_asks_for_as_much(body: bytes) -> None:
    assert rejection(1.0).holds(body, 5.0)


@pytest.mark.parametrize(
    "body",
    [
        TWO_ROWS.replace(b", [3, 4]", b"").ljust(100),
        TWO_ROWS.replace(b", [3, 4]]", b"]" + b" " * 50),
        TWO_ROWS.replace(b", [3, 4]]}", b"]}[,[,}"),  # text behind the end is ignored
        TWO_ROWS.replace(b'"f"', b'"g"'),
        TWO_ROWS.replace(b'"signature_name"', b'"signature_nam\\u0065"'),
        TWO_ROWS.replace(b"]}", b'], "signature_name": "g"}'),
        TWO_ROWS.replace(b"]}", b'], "signature_nam\\u0065": "g"}'),
        TWO_ROWS.replace(b"4", b'"4"'),
        b"\x0a\x03\x0a\x01m" + TWO_ROWS,
        b"",
    ],
)
def test_a_rejection_does_not_apply_to_a_body_that_may_ask_for_less_or_another_thing(body: bytes) -> None:
    assert not rejection(1.0).holds(body, 5.0)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[1]", b'{"x": 1} ', b'{"%b": [1]}' % bytes(600), b'{"x": [%b1]}' % (b"1," * 5000)]
)
def test_a_body_that_tells_too_little_is_not_remembered(body: bytes) -> None:
    assert JsonOutline.of(body) is None


@pytest.mark.parametrize(
    ("kind", "compared"),
    [
        (b"", True),
        (b"application/json; charset=utf-8", True),
        (b"application/x-www-form-urlencoded", True),
        (b"application/x-protobuf", False),
        (b"application/msgpack", False),
    ],
)
def test_of_bodies_in_one_piece_only_those_of_json_are_compared(kind: bytes, compared: bool) -> None:
    outline = json_outline(kind, TWO_ROWS)
    assert outline == (JsonOutline.of(TWO_ROWS) if compared else None)


def test_binary_tensors_are_compared_by_the_json_before_them() -> None:
    outline = BinaryOutline.of(b'{"two": 1}'[:9] + b"\x01\x02", 9)
    assert outline == BinaryOutline(b'{"two": 1', 11)
    assert outline.covers(b'{"two": 1\x07\x08')
    assert not outline.covers(b'{"two": 1\x07\x08\x09')
    assert not outline.covers(b'{"two": 1\x07')
    assert not outline.covers(b'{"one": 1\x07\x08')


@pytest.mark.parametrize(("length", "body"), [(0, b"{}"), (3, b"{}"), (513, b"{%b}" % bytes(600)), (2, b"")])
def test_binary_tensors_whose_json_is_long_or_not_there_are_not_remembered(length: int, body: bytes) -> None:
    assert BinaryOutline.of(body, length) is None


@pytest.mark.parametrize(("retry_after_s", "until_s"), [(0.005, 5.005), (3.0, 5.02)])
def test_a_rejection_applies_until_its_retry_time_and_20_ms_at_most(retry_after_s: float, until_s: float) -> None:
    assert rejection(retry_after_s).until_s == pytest.approx(until_s)
    assert not rejection(retry_after_s).holds(TWO_ROWS, until_s + 1e-9)


async def rejecting(rejected: bytes = V1, before: bytes = V1) -> World:
    """A world whose first connection has just got a 503: two calls are before its request."""
    world = World(True, admission=True)
    await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)  # it knows what a call takes now
    world.transport.out = b""
    for _ in range(2):
        await send(world, before)
    await world.hear(rejected, 0.0)
    assert [status for status, _, _ in world.replies()] == [503]
    return world


async def send(world: World, message: bytes) -> list[int]:
    """Sends the message on a new connection; the statuses of the replies that come at once."""
    connection, transport = world.connect()
    connection.data_received(message)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [status for status, _, _ in world.replies(transport)]


def malformed(headers: dict[str, str], rows: int = 20) -> bytes:
    """As many lists and values as in so many rows, and no numbers: who parses it says 400."""
    return request(body=json.dumps({"instances": [[1.0, 2.0]] * rows}).replace("1.0", "1.x").encode(), headers=headers)


def test_a_request_with_a_rejected_head_is_rejected_without_parsing_its_body() -> None:
    async def main() -> None:
        world = await rejecting()
        assert await send(world, malformed(TIMEOUT)) == [503]
        told = [(event.code, event.model, event.version, event.signature) for event in world.finished[-2:]]
        assert told == [("503", "m", 1, "serving_default")] * 2

    run_in_fake_time(main())


def test_a_connection_stays_open_after_a_rejection_unless_the_client_asks_to_close_it() -> None:
    async def main() -> None:
        world = await rejecting()
        connection, transport = world.connect()
        for _ in range(3):
            connection.data_received(V1)
        assert [status for status, _, _ in world.replies(transport)] == [503] * 3
        first, *_ = world.replies(world.transport)
        assert world.replies(transport)[0] == first  # the same bytes as the reply to the request that was parsed
        assert not transport.closed
        await asyncio.sleep(world.connection._limits.keep_alive_s + 1)
        assert transport.closed

        last = request(body=ROWS, headers={**TIMEOUT, "Connection": "close"})
        world = await rejecting(last)
        connection, transport = world.connect()
        connection.data_received(last)
        await asyncio.sleep(0)
        assert [status for status, _, _ in world.replies(transport)] == [503]
        assert transport.closed

    run_in_fake_time(main())


def test_a_rejection_of_the_last_request_of_a_client_that_stopped_sending_says_that_it_closes() -> None:
    async def main() -> None:
        world = await rejecting()
        connection, transport = world.connect()
        connection.data_received(malformed({"X-Request-Timeout-Ms": "2501"}) + V1)
        assert connection.eof_received()
        for _ in range(5):
            await asyncio.sleep(0)
        (first, *_), (last, headers, _) = world.replies(transport)
        assert (first, last) == (400, 503)
        assert headers["connection"] == "close"
        assert transport.closed

    run_in_fake_time(main())


def test_a_rejection_applies_to_later_requests_of_the_same_turn() -> None:
    async def main() -> None:
        world = World(True, admission=True)
        await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)
        clients = [world.connect() for _ in range(4)]
        for number, (connection, _) in enumerate(clients):
            connection.data_received(request(body=ROWS, headers=TIMEOUT) if number < 3 else malformed(TIMEOUT))
        await asyncio.sleep(3.5 * COMPUTE_S)
        assert [world.replies(transport)[0][0] for _, transport in clients] == [200, 200, 503, 503]

    run_in_fake_time(main())


def test_a_request_with_another_head_or_a_smaller_body_is_parsed() -> None:
    async def main() -> None:
        world = await rejecting()
        assert await send(world, malformed(TIMEOUT, 19)) == [400]  # it may have fewer rows
        assert await send(world, malformed({"X-Request-Timeout-Ms": "2501"})) == [400]
        assert await send(world, malformed({**TIMEOUT, "X-Request-Priority": "1"})) == [400]
        await asyncio.sleep(0.021)
        assert await send(world, malformed(TIMEOUT)) == [400]

    run_in_fake_time(main())


def v2(data: str = "", **parameters: int) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [20, 2], "data": [1.0] * 40}
    body = json.dumps({"parameters": parameters, "inputs": [tensor]})
    return request(INFER, body.replace("1.0", data or "1.0").encode(), TIMEOUT)


@pytest.mark.parametrize("parameters", [{"priority": 9}, {"timeout": 2_400_000}])
def test_a_rejection_of_v2_applies_to_the_same_parameters(parameters: dict[str, int]) -> None:
    async def main() -> None:
        world = await rejecting(v2())
        assert await send(world, v2("1.x")) == [503]
        assert await send(world, v2("1.x", **parameters)) == [400]

    run_in_fake_time(main())


def v2_in_order(*fields: str, rows: int = 20, **parameters: int) -> bytes:
    """The fields of the document in this order; `shape` stands for an input that ends with its shape."""
    tensor = {"name": "x", "datatype": "FP32", "data": [1.0] * 40, "shape": [rows, 40 // rows]}
    document = {"inputs": [tensor], "parameters": parameters}
    return request(INFER, {name: document[name] for name in fields})


LATE = {"timeout": 2_500_000}  # microseconds


@pytest.mark.parametrize(
    ("rejected", "other", "answers"),
    [
        (v2_in_order("inputs", "parameters", **LATE), v2_in_order("inputs", "parameters", timeout=9_000_000), []),
        (
            v2_in_order("inputs", "parameters", **LATE, priority=9),
            v2_in_order("inputs", "parameters", **LATE, priority=1),
            [],
        ),
        (v2_in_order("parameters", "inputs", **LATE), v2_in_order("parameters", "inputs", rows=1, **LATE), [400]),
    ],
    ids=["timeout", "priority", "shape"],
)
def test_a_rejection_of_v2_applies_to_no_other_numbers_behind_the_values(
    rejected: bytes, other: bytes, answers: list[int]
) -> None:
    async def main() -> None:
        world = await rejecting(rejected)
        assert await send(world, rejected) == [503]
        assert await send(world, other) == answers

    run_in_fake_time(main())


def test_a_rejection_of_a_body_that_came_slowly_applies_to_no_request_with_more_time_left() -> None:
    async def main() -> None:
        world = World(True, admission=True)
        await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)
        world.transport.out = b""
        slow, transport = world.connect()
        slow.data_received(V1[:-1])
        await asyncio.sleep(1.0)
        assert await send(world, V1) == []
        slow.data_received(V1[-1:])
        await asyncio.sleep(0.01)
        assert [status for status, _, _ in world.replies(transport)] == [503]  # it has 1.5 s for two calls
        assert await send(world, V1) == []  # it has 2.5 s, and waits
        assert await send(world, malformed(TIMEOUT)) == [400]

    run_in_fake_time(main())


def binary(values: bytes, rows: int = 20) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 2], "parameters": {"binary_data_size": 8 * rows}}
    text = json.dumps({"inputs": [tensor]}).encode()
    return request(INFER, text + values, {**TIMEOUT, "Inference-Header-Content-Length": str(len(text))})


def test_a_rejection_of_binary_tensors_applies_to_as_many_rows() -> None:
    async def main() -> None:
        good = bytes(160)
        world = await rejecting(binary(good), V1)
        assert await send(world, binary(good)) == [503]
        assert [event.code for event in world.finished[-2:]] == ["503", "503"]
        assert sum(isinstance(each, RequestsRefused) for each in world.events) == 2
        assert await send(world, binary(bytes(168), 20)) == [400]  # its JSON says less than there is: it is parsed

    run_in_fake_time(main())


@pytest.mark.parametrize("length", ["9", "x"])
def test_the_length_of_json_before_binary_tensors_means_nothing_to_another_protocol(length: str) -> None:
    async def main() -> None:
        headers = {**TIMEOUT, "Inference-Header-Content-Length": length}
        world = await rejecting(request(body=ROWS, headers=headers))
        assert await send(world, malformed(headers)) == [503]  # by its lists and values, as without it

    run_in_fake_time(main())


def test_a_rejection_by_the_head_counts_as_what_it_took() -> None:
    async def main() -> None:
        world = await rejecting()
        connection, _ = world.connect()
        clock = world.connection._fast_path.clock
        times = iter([clock(), clock() + 0.002])
        world.connection._fast_path.clock = lambda: next(times, clock() + 0.002)
        connection.data_received(V1)
        assert world.finished[-1].seconds == pytest.approx(0.002)

    run_in_fake_time(main())


def test_a_body_with_another_signature_is_parsed() -> None:
    async def main() -> None:
        world = await rejecting()
        for name in ("signature_name", "signature_nam\\u0065"):
            other = b'{"%b": "pair", "instances": [%b]}' % (name.encode(), b"[1.x]," * 40)
            assert await send(world, request(body=other, headers=TIMEOUT)) == [400]

    run_in_fake_time(main())


def test_a_rejection_because_of_a_full_queue_applies_to_no_other_request() -> None:
    async def main() -> None:
        world = World(True, admission=True)
        rows = {"instances": [[1.0, 2.0]] * 650}
        body = json.dumps(rows).encode()
        assert await send(world, request(body=body)) == []
        assert await send(world, request(body=body)) == [503]
        assert await send(world, malformed({}, 650)) == [400]

    run_in_fake_time(main())


def test_a_rejection_of_one_caller_is_not_another_ones_where_these_are_told_apart() -> None:
    """By their addresses: their heads are equal."""

    async def main() -> None:
        world = World(True, admission=True, callers="address")
        await world.hear(request(headers=TIMEOUT), 3.5 * COMPUTE_S)
        world.transport.out = b""
        for _ in range(2):
            await send(world, V1)
        await world.hear(V1, 0.0)
        assert [status for status, _, _ in world.replies()] == [503]
        connection, transport = world.connect("10.0.0.9")
        connection.data_received(malformed(TIMEOUT))
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert [status for status, _, _ in world.replies(transport)] == [400]

    run_in_fake_time(main())


def test_a_request_whose_key_was_removed_is_denied_not_rejected() -> None:
    key = b"right-key-0123456789"
    principal = Principal("one", Rules(("*",), frozenset(Permission), rate=0.001, burst=5))
    access = Access(AccessFile({digest_of(key): principal}), clock=fake_time, wall_clock=fake_time)
    headers = {**TIMEOUT, "x-api-key": key.decode()}

    async def main() -> None:
        world = World(True, admission=True, access=access)
        await world.hear(request(headers=headers), 3.5 * COMPUTE_S)
        message = request(body=ROWS, headers=headers)
        assert [await send(world, message) for _ in range(2)] == [[], []]
        assert [await send(world, message) for _ in range(3)] == [[503], [503], [429]]
        access.change(AccessFile())
        assert await send(world, message) == [401]

    run_in_fake_time(main())
