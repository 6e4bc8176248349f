"""The load generator, against servers on loopback that are as bad as servers can be."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.load_connection import ServerReply
from app.bench.open_loop import LoadTarget, OpenLoopResult, arrivals, open_loop, percentile, run_precisely
from tests.bench.scripted_server import OK, REQUEST, Answer, Scripted, always
from tests.support.waiting import HANG_S


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late, but it answers."""
    monkeypatch.setattr("app.bench.open_loop.GRACE_S", HANG_S)


def load(
    answer: Answer, rate: float = 200, seconds: float = 0.2, connections: int = 4, **options: Any
) -> tuple[OpenLoopResult, Scripted]:
    server = Scripted(answer)

    async def main() -> OpenLoopResult:
        async with server as port:
            return await open_loop(LoadTarget("127.0.0.1", port, connections), [REQUEST], rate, seconds, **options)

    return run_precisely(main()), server


def test_every_arrival_is_sent_and_answered() -> None:
    result, server = load(always(OK), connections=100)  # more than requests: a busy machine holds none back
    assert result.intended == len(list(arrivals(200, 0.2, 0))) == len(server.requests) == len(result.latencies_s)
    assert (result.failed, result.held_back, result.unsent) == (0, 0, 0)
    assert result.latencies_s == sorted(result.latencies_s)
    assert server.requests[0] == REQUEST
    assert len(result.late_s) == result.intended
    assert result.late_p99_s >= 0
    assert result.answered_rate == pytest.approx(result.intended / 0.2)


def test_more_than_the_connections_wait_their_turn_and_their_latency_counts() -> None:
    """Replies come only when the last request has come: all but the first four have waited for a connection."""
    gate = asyncio.Event()

    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 3:
            asyncio.get_running_loop().call_later(0.2, gate.set)
        await gate.wait()
        writer.write(OK)

    result, server = load(answer, rate=400, seconds=0.1)
    assert result.intended > 10
    assert len(result.latencies_s) == len(server.requests) == result.intended
    assert result.latency_s(0.0) > 0.05
    assert result.held_back == result.intended - 4


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (always(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), "status 503"),
        (always(b"", close=True), "The server closed the connection"),
    ],
)
def test_failures_are_counted_by_their_kind(answer: Answer, failure: str) -> None:
    result, _ = load(answer)
    assert result.failures[failure] == result.intended > 0
    assert result.latency_s(0.5) == float("inf")


def test_wrong_answers_are_failures() -> None:
    def check(number: int, reply: ServerReply) -> None:
        if reply.body != b"right":
            raise ValueError(f"{reply.body!r}")

    result, _ = load(always(OK), check=check)
    assert result.failures["wrong answer: b'ok'"] == result.intended
    assert load(always(OK), check=lambda number, reply: None)[0].failed == 0


def test_every_reply_is_reported_whatever_its_status() -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(OK if number % 2 else b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")

    heard: list[tuple[int, float]] = []
    result, _ = load(answer, heard=lambda reply, latency_s: heard.append((reply.status, latency_s)))
    assert len(heard) == result.intended
    assert sorted(latency for status, latency in heard if status == 200) == result.latencies_s
    assert sum(status == 503 for status, _ in heard) == result.failures["status 503"] > 0


def test_requests_without_an_answer_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.bench.open_loop.GRACE_S", 0.05)

    async def never(number: int, writer: asyncio.StreamWriter) -> None: ...

    result, server = load(never)
    assert result.failures["no answer in time"] == result.intended
    assert result.unsent == result.intended - 4, "the server never saw those that waited for one of the connections"
    assert len(server.requests) == 4


def test_a_closed_port_is_an_error_at_the_start_and_a_failure_later() -> None:
    with pytest.raises(OSError, match=r"rejected|Connect call failed"):
        run_precisely(open_loop(LoadTarget("127.0.0.1", 1), [REQUEST], 10, 0.1))

    server = Scripted(always(b"", close=True))

    async def answer_and_leave(number: int, writer: asyncio.StreamWriter) -> None:
        server._server.close()
        writer.close()

    server._answer = answer_and_leave

    async def main() -> OpenLoopResult:
        async with server as port:
            return await open_loop(LoadTarget("127.0.0.1", port, 1), [REQUEST], 200, 0.2)

    result = run_precisely(main())
    assert result.failed == result.intended
    assert any(kind.startswith("no connection") for kind in result.failures)


@given(st.floats(1, 1e4), st.floats(0.01, 1), st.integers(0, 100))
def test_arrivals_ascend_and_end(rate: float, seconds: float, seed: int) -> None:
    times = list(arrivals(rate, seconds, seed))
    assert times == sorted(times) == list(arrivals(rate, seconds, seed))
    assert all(0 < time < seconds for time in times)


def test_arrivals_come_at_the_rate() -> None:
    assert len(list(arrivals(1000, 10, 1))) == pytest.approx(10_000, rel=0.05)


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0, 1))
def test_a_percentile_was_seen(values: list[float], q: float) -> None:
    ascending = sorted(values)
    assert percentile(ascending, q) in ascending
    assert percentile(ascending, 0) == ascending[0]
    assert percentile(ascending, 1) == ascending[-1]


def test_a_percentile_of_nothing_is_unbounded() -> None:
    assert percentile([], 0.5) == float("inf")
