from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import ModelNotReady, Overloaded
from app.core.events import BatchExecuted
from app.transports.http.asgi import Message
from tests.support.fakes import fake_time, run_in_fake_time
from tests.support.protocol_fakes import scope, scripted
from tests.support.stream_world import COMPUTE_S, LARGEST, MAX_BYTES, PATH, TIMEOUT_S, Peer, World, doubled
from tests.transports.http.test_compression import in_pieces

#: What bounds a line, in words.
LIMITS = "max_body_bytes, or what a small container has memory for"

WINDOW = 4 * LARGEST

#: Messages that are received although nobody can read them yet: one waits, and one waits to wait.
AHEAD = 2

# --- lines in, lines out ---


def test_each_line_is_answered_in_order() -> None:
    async def main() -> None:
        world = World()
        peer = world.connect()
        peer.say(*[[n, n] for n in range(10)])
        peer.say(b"\n", [10, 10], b"[11, ", b"11]")
        peer.stop()
        assert await peer.end() == doubled(*range(12))
        assert peer.status == 200
        assert peer.headers == {b"content-type": b"application/x-ndjson"}
        assert max(map(len, world.loaded.function.calls)) == LARGEST
        (event,) = world.finished
        assert event[:5] == ("tensorflow_rest", "200", "m", 1, "serving_default")

    run_in_fake_time(main())


def test_a_line_is_answered_before_the_next_one_comes() -> None:
    async def main() -> None:
        peer = World().connect()
        for n in range(3):
            peer.say([n, n])
            assert await peer.replied(n + 1) == doubled(*range(n + 1))
        peer.stop()
        assert len(await peer.end()) == 3

    run_in_fake_time(main())


def test_no_lines_no_replies() -> None:
    async def main() -> None:
        peer = World().connect()
        peer.say(b"\n \r\n")
        peer.stop()
        assert await peer.end() == []
        assert peer.status == 200

    run_in_fake_time(main())


def test_named_inputs_and_the_outputs_wanted() -> None:
    async def main() -> None:
        world = World()
        peer = world.connect(f"{PATH}?signature_name=pair&output=w")
        peer.say({"x": [1, 1], "z": [2, 2]}, {"x": [1, 1]}, {"z": [3, 3], "x": [1, 1]})
        peer.stop()
        first, rejected, last = await peer.end()
        assert (first, last) == ({"prediction": [6.0, 6.0]}, {"prediction": [9.0, 9.0]})
        assert rejected["error"].startswith("Line 2: ")
        assert rejected["error"].endswith("keys must be equal to: x,z")
        assert set(world.loaded.wanted) == {("w",)}

    run_in_fake_time(main())


def test_what_cannot_share_a_call_runs_line_by_line() -> None:
    async def main() -> None:
        world = World()
        uneven = world.connect(f"{PATH}?signature_name=uneven")
        uneven.say([2, 3], [4, 4])
        uneven.stop()
        rejected, answered = await uneven.end()
        assert answered == {"prediction": 4.0}
        assert "made 2 predictions of 1 instance" in rejected["error"]
        scalar = world.connect(f"{PATH}?signature_name=total")
        scalar.say(1, 2)
        scalar.stop()
        assert [reply["error"].partition(" has shape ")[0] for reply in await scalar.end()] == [
            "Line 1: Input 'x'", "Line 2: Input 'x'",
        ]  # fmt: skip

    run_in_fake_time(main())


def test_lines_with_infinity_run_alone_where_only_finite_numbers_share_calls() -> None:
    async def main() -> None:
        world = World()
        placement = world.model._placement
        known = placement.signatures["serving_default"]
        placement.signatures = {"serving_default": replace(known, finite_only="it loops")}
        peer = world.connect()
        peer.say([1, 1], [2, 2], [3, float("inf")], [4, 4])
        peer.stop()
        assert [each["prediction"][0] for each in await peer.end()] == [2, 4, 6, 8]
        calls = [event.rows for event in world.events if isinstance(event, BatchExecuted)]
        assert sorted(calls) == [1, 1, 2]

    run_in_fake_time(main())


GOOD = st.integers(0, 99).map(lambda n: b"[%d, %d.5]" % (n, n))
BAD = st.sampled_from([
    b"[1.0]", b'"x"', b"[1, true]", b"[[1, 1]]", b"null", b"[-1, 1]", b"{}", b"nope", b"[1, 2", b"2]", b"[1, 2] x",
])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(GOOD, GOOD, BAD, st.just(b"")), max_size=20), st.lists(st.integers(0, 300), max_size=6))
def test_replies_are_those_of_predict_however_the_body_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    async def predict(world: World, line: bytes) -> Any:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        body = {"type": "http.request", "body": b'{"instances": [' + line + b"]}"}
        await world.app(scope("POST", "/v1/models/m:predict"), scripted(body), send)
        return json.loads(sent[1]["body"])

    async def main() -> None:
        world = World()
        peer = world.connect()
        for piece in in_pieces(b"\n".join(lines), cuts):
            peer.send_bytes(piece)
        peer.stop()
        numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
        for reply, (number, line) in zip(await peer.end(), numbered, strict=True):
            try:
                json.loads(line)
            except ValueError:
                assert reply["error"].startswith(f"Line {number}: JSON Parse error: ")
                continue
            expected = await predict(world, line)
            if "error" in expected:
                assert reply == {"error": f"Line {number}: {expected['error']}"}
            else:
                assert [reply["prediction"]] == expected["predictions"]

    run_in_fake_time(main())


# --- what ends a stream, and what does not ---


def test_a_line_that_is_too_long_ends_it_behind_the_others() -> None:
    async def main() -> None:
        peer = World().connect()
        peer.say([1, 1], [2, 2], b"[" * (MAX_BYTES + 1))
        peer.say([3, 3])
        assert await peer.end() == [
            *doubled(1, 2), {"error": f"Line 3 is longer than {MAX_BYTES} bytes: {LIMITS}"},
        ]  # fmt: skip

    run_in_fake_time(main())


@pytest.mark.parametrize("whole", [True, False])
def test_a_compressed_body_may_be_of_any_length(whole: bool) -> None:
    async def main() -> None:
        peer = World().connect(content_encoding="gzip")
        body = gzip.compress(b"[1, 1]\n" * MAX_BYTES)
        peer.send_bytes(body if whole else body[:-1])
        peer.stop()
        *replies, last = await peer.end()
        assert replies == doubled(1) * (MAX_BYTES - whole)
        error = {"error": "The body is not valid gzip though Content-Encoding says so"}
        assert last == (replies[0] if whole else error)

    run_in_fake_time(main())


def test_a_model_that_fails_ends_nothing() -> None:
    async def main() -> None:
        peer = World().connect()
        peer.say(b"[NaN, 1]\n")
        assert await peer.replied(1) == [{"error": "Line 1: The model failed on NaN"}]
        peer.say([2, 2])
        peer.stop()
        assert (await peer.end())[1:] == doubled(2)

    run_in_fake_time(main())


def test_lines_too_many_for_the_memory_of_the_device_are_halved() -> None:
    async def main() -> None:
        world = World()
        world.loaded.function.memory_rows = 1
        peer = world.connect()
        peer.say(*[[n, n] for n in range(4)])
        peer.stop()
        assert await peer.end() == doubled(*range(4))

    run_in_fake_time(main())


def test_a_bug_of_ours_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = World()
        peer = world.connect()
        peer.say([1, 1])
        await peer.replied(1)
        world.repository.failure = KeyError("a secret of ours")
        peer.say([2, 2])
        assert (await peer.replied(2))[1] == {"error": "Line 2: Internal error"}
        peer.stop()
        await peer.end()

    run_in_fake_time(main())
    assert "a secret of ours" in caplog.text


@pytest.mark.parametrize(
    ("path", "headers", "status", "text"),
    [
        ("/v1/models/nope:predictStream", {}, 404, "Latest(nope)"),
        ("/v1/models/m/versions/2:predictStream", {}, 404, "Specific(m, 2)"),
        (f"{PATH}?signature_name=nope", {}, 400, "nope"),
        (f"{PATH}?output=nope", {}, 400, "nope"),
        (PATH, {"content_type": "image/png"}, 415, "application/x-ndjson"),
        (PATH, {"content_type": "text/plain; charset=utf-16"}, 415, "utf-8"),
        (PATH, {"content_encoding": "br"}, 415, "gzip"),
        (PATH, {"x_request_timeout_ms": "soon"}, 400, "X-Request-Timeout-Ms"),
    ],
)
def test_what_is_wrong_before_the_first_line_has_a_status(
    path: str, headers: dict[str, str], status: int, text: str
) -> None:
    async def main() -> None:
        world = World()
        peer = world.connect(path, **headers)
        peer.say([1, 1])
        (reply,) = await peer.end()
        assert peer.status == status
        assert text in reply["error"]
        assert [event.code for event in world.finished] == [str(status)]

    run_in_fake_time(main())


@pytest.mark.parametrize(
    "kind", ["application/x-ndjson", "application/json; charset=utf-8", "text/plain", "application/octet-stream"]
)
def test_types_that_lines_of_json_are_sent_as(kind: str) -> None:
    async def main() -> None:
        peer = World().connect(content_type=kind)
        peer.say([1, 1])
        peer.stop()
        assert await peer.end() == doubled(1)

    run_in_fake_time(main())


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ({}, b"application/x-ndjson"),
        ({"accept": "*/*"}, b"application/x-ndjson"),
        ({"accept": "image/png"}, b"application/x-ndjson"),
        ({"accept": "application/octet-stream"}, b"application/octet-stream"),
    ],
)
def test_a_reply_is_told_as_bytes_where_these_are_asked_for(accept: dict[str, str], kind: bytes) -> None:
    async def main() -> None:
        peer = World().connect(**accept)
        peer.say([1, 1])
        peer.stop()
        assert await peer.end() == doubled(1)
        assert peer.headers[b"content-type"] == kind

    run_in_fake_time(main())


# --- back-pressure ---


def test_a_client_that_does_not_read_replies_is_not_read_from() -> None:
    async def main() -> None:
        world = World()
        peer = world.connect()
        for n in range(1000):
            peer.say([n, n])
        peer.stop()
        peer.reads.clear()
        await asyncio.sleep(100)
        assert world.computed == WINDOW
        assert peer.heard == WINDOW + 1 + AHEAD, "one line more waits for room"
        peer.reads.set()
        assert await peer.end() == doubled(*range(1000))

    run_in_fake_time(main())


@pytest.mark.parametrize("read", [0, 1, 7, 40])
def test_wherever_a_client_stops_reading_no_more_than_the_window_is_ahead_of_it(read: int) -> None:
    """A reply that is being sent is not read yet: its line is in the window."""

    async def main() -> None:
        world = World()
        peer = world.connect()
        for n in range(100):
            peer.say([n, n])
        peer.stop()
        await asyncio.sleep(0.1)  # the head has come
        await peer.replied(read)
        peer.reads.clear()
        await asyncio.sleep(200)
        assert world.computed == len(peer.replies) + WINDOW
        peer.reads.set()
        assert await peer.end() == doubled(*range(100))

    run_in_fake_time(main())


def test_of_long_lines_fewer_are_taken_in() -> None:
    async def main() -> None:
        peer = World().connect()
        for n in range(10):
            peer.say(b"[%d, %d]" % (n, n) + b" " * (MAX_BYTES // 3) + b"\n")
        peer.stop()
        peer.reads.clear()
        await asyncio.sleep(100)
        assert peer.heard == 3 + AHEAD
        peer.reads.set()
        assert await peer.end() == doubled(*range(10))

    run_in_fake_time(main())


def test_an_interactive_request_waits_for_one_batch_at_most() -> None:
    async def main() -> None:
        world = World()
        peers = [world.connect() for _ in range(2)]
        for peer in peers:
            peer.say(*[[n, n] for n in range(100)])
        for seconds in (0.9, 1.3, 2.0, 0.1):
            await asyncio.sleep(seconds)
            assert world.batcher.queue.rows >= LARGEST, "others wait"
            started_s = asyncio.get_running_loop().time()
            await world.ask(1)
            assert asyncio.get_running_loop().time() - started_s <= 2 * COMPUTE_S
        for peer in peers:
            peer.hang_up()
            await peer.end()

    run_in_fake_time(main())


def test_an_interactive_request_finds_room_however_many_streams_there_are() -> None:
    async def main() -> None:
        world = World(max_queue_rows=100)
        peers = [world.connect() for _ in range(20)]
        for peer in peers:
            peer.say(*[[n, n] for n in range(100)])
        for _ in range(5):
            await asyncio.sleep(1.3 * COMPUTE_S)
            assert world.batcher.queue.rows > 50 - LARGEST, "streams wait"
            await world.ask(1)
        for peer in peers:
            peer.hang_up()
            await peer.end()

    run_in_fake_time(main())


def test_a_queue_without_room_is_waited_for() -> None:
    async def main() -> None:
        world = World(max_queue_rows=LARGEST)
        peer = world.connect()
        peer.say(*[[n, n] for n in range(5 * LARGEST)])
        peer.stop()
        assert await peer.end() == doubled(*range(5 * LARGEST))

    run_in_fake_time(main())


def test_a_queue_without_room_is_not_waited_for_longer_than_a_line_has() -> None:
    async def main() -> None:
        world = World(max_queue_rows=LARGEST)
        peer = world.connect(x_request_timeout_ms="2500")
        peer.say(*[[n, n] for n in range(4 * LARGEST)])
        peer.stop()
        replies = await peer.end()
        assert replies[:LARGEST] == doubled(*range(LARGEST))
        assert replies[-1]["error"].startswith(f"Line {4 * LARGEST}: ")
        assert len(replies) == 4 * LARGEST

    run_in_fake_time(main())


def test_a_line_that_others_leave_no_room_for_says_so_when_its_time_is_over() -> None:
    """Any other request goes first, so under a storm a small queue has no room for bulk work while it lasts."""

    async def main() -> None:
        world, begin_s = World(max_queue_rows=2), fake_time()

        async def storm() -> None:
            while True:
                try:
                    await world.ask(1.0)
                except Overloaded:
                    await asyncio.sleep(0.001)

        storms = [asyncio.create_task(storm()) for _ in range(8)]
        await asyncio.sleep(0.01)
        peer = world.connect(x_request_timeout_ms="2500")
        peer.say([1, 1], [2, 2])
        peer.stop()
        replies = await peer.end()
        assert fake_time() - begin_s <= 2.6
        assert [each["error"][:8] for each in replies] == ["Line 1: ", "Line 2: "]
        assert all("The queue is full" in each["error"] or "time ran out" in each["error"] for each in replies)
        for each in storms:
            each.cancel()
        await asyncio.gather(*storms, return_exceptions=True)

    run_in_fake_time(main())


# --- time ---


def test_the_time_is_that_of_a_line_and_not_of_the_stream() -> None:
    async def main() -> None:
        peer = World().connect(x_request_timeout_ms="1500")
        for n in range(5):
            peer.say([n, n])
            await peer.replied(n + 1)
        peer.stop()
        assert await peer.end() == doubled(*range(5))

    run_in_fake_time(main())


def test_a_line_that_is_late_says_so_and_the_next_one_is_answered() -> None:
    async def main() -> None:
        peer = World().connect(x_request_timeout_ms="500")
        peer.say([1, 1])
        (late,) = await peer.replied(1)
        assert late["error"].startswith("Line 1: The request's time ran out")
        peer.stop()
        await peer.end()

    run_in_fake_time(main())


# --- ends ---


async def hang_up_during_the_first_call(world: World, peer: Peer, waits: int) -> None:
    """So many rows wait then; none of them is ever computed."""
    await asyncio.sleep(COMPUTE_S / 2)
    assert world.batcher.queue.rows == waits
    peer.hang_up()
    await peer.end()
    assert world.batcher.queue.rows == 0
    assert [event.code for event in world.finished] == ["499"]
    await asyncio.sleep(TIMEOUT_S)
    assert world.computed == LARGEST


@pytest.mark.parametrize("stops", [True, False])
def test_when_the_client_goes_what_waits_is_withdrawn(stops: bool) -> None:
    async def main() -> None:
        world = World()
        peer = world.connect()
        peer.say(*[[n, n] for n in range(2 * LARGEST)])
        if stops:
            peer.stop()
        await hang_up_during_the_first_call(world, peer, waits=LARGEST)

    run_in_fake_time(main())


@pytest.mark.parametrize("compressed", [False, True])
def test_when_the_client_goes_while_there_is_no_room_nothing_more_is_computed(compressed: bool) -> None:
    async def main() -> None:
        world = World()
        peer = world.connect(content_encoding="gzip" if compressed else "identity")
        lines = b"[1, 1]\n" * (3 * WINDOW)
        peer.send_bytes(gzip.compress(lines) if compressed else lines)
        peer.stop()
        await hang_up_during_the_first_call(world, peer, waits=WINDOW - LARGEST)

    run_in_fake_time(main())


def test_at_shutdown_what_was_taken_in_is_answered_and_the_stream_ends() -> None:
    async def main() -> None:
        world = World()
        busy, idle = world.connect(), world.connect()
        busy.say(*[[n, n] for n in range(100)])
        idle.say([1, 1])
        await idle.replied(1)
        taken_in = world.computed + world.batcher.queue.rows
        world.drain()
        last = {"error": "The server is shutting down"}
        assert await idle.end() == [*doubled(1), last]
        *replies, end = await busy.end()
        assert end == last
        answered = [reply for reply in replies if "prediction" in reply]
        assert answered == doubled(*range(len(answered)))
        assert len(answered) + 1 >= taken_in
        await world.batcher.drain()
        rejected = world.connect()
        await rejected.end()
        assert rejected.status == 503
        assert rejected.replies == [last]

    run_in_fake_time(main())


def test_a_new_version_takes_over_between_two_lines() -> None:
    async def main() -> None:
        world = World()
        peer, pinned = world.connect(), world.connect("/v1/models/m/versions/1:predictStream")
        for each in (peer, pinned):
            each.say([1, 1])
        second = world.add(2)
        await peer.replied(1)
        del world.repository.models["m", 1]
        await asyncio.wait_for(world.model.close(), 10)
        for each in (peer, pinned):
            each.say([2, 2])
            each.stop()
        assert await peer.end() == doubled(1, 2)
        loaded: Any = second._placement.loaded
        assert loaded.function.calls
        assert (await pinned.end())[1] == {"error": "Line 2: Servable not found for request: Specific(m, 1)"}

    run_in_fake_time(main())


def test_while_no_version_is_ready_lines_say_so() -> None:
    async def main() -> None:
        world = World()
        peer = world.connect()
        peer.say([1, 1])
        await peer.replied(1)
        world.repository.failure = ModelNotReady("m is loading")
        peer.say([2, 2], [3, 3])
        await peer.replied(3)
        world.repository.failure = None
        peer.say([4, 4])
        peer.stop()
        assert await peer.end() == [
            *doubled(1), {"error": "Line 2: m is loading"}, {"error": "Line 3: m is loading"}, *doubled(4),
        ]  # fmt: skip

    run_in_fake_time(main())
