"""Zero seconds are what the settings say of them: never, no limit, or at once; and a time of zero that a client sends
is over when it comes, or is rejected.
"""

from __future__ import annotations

import asyncio
from math import inf
from pathlib import Path
from typing import Any

import grpc
import httpx

from app.server.grpc_servers import grpc_options
from app.server.http_server import connection_limits
from app.transports.grpc.arguments import times_of
from tests.access.test_every_route import MODEL_INFER, PREDICT_PATH, ROWS, infer_message
from tests.every_protocol.live import live, settings
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place
from tests.support.waiting import HANG_S
from tests.transports.rest_http2.http2_transport import Http2Transport

__all__ = ["runtime_in_place"]  # a fixture

#: Each setting of seconds, or of what is counted in a time, that may be zero.
ZERO: dict[str, Any] = {
    "max_connection_age_s": 0,
    "poll_interval_s": 0,
    "settle_s": 0,
    "empty_grace_s": 0,
    "drain_grace_s": 0,
    "load_budget_s": 0,
    "max_batch_delay_ms": 0,
    "max_inline_ms": 0,
    "target_p99_ms": 0,
    "access_log": 0,
    "trace_sample_share": 0,
    "max_connections_per_address": 0,
}


@in_every_arrangement
def test_a_server_of_zeros_answers_and_ends_no_connection(tmp_path: Path, frontends: int) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_S), live(tmp_path, frontends=frontends, **ZERO) as running:
            assert running.server.repository.resolve("m").version == 1
            grpc_port = running.faces[0].grpc.port  # type: ignore[union-attr]  # it serves gRPC
            connections = set()
            for _ in range(3):
                for client in (running.http, running.http2):
                    reply = await client.post(PREDICT_PATH, json=ROWS)
                    assert reply.status_code == 200, reply.text
                    assert "connection" not in reply.headers
                connections.add(running.http2._transport._connection)  # type: ignore[attr-defined]  # Http2Transport
                await running.channel.unary_unary(MODEL_INFER)(infer_message().SerializeToString())
            assert len(connections) == 1

            # What clients send.
            reply = await running.http.post(PREDICT_PATH, json=ROWS, headers={"x-request-timeout-ms": "0"})
            assert (reply.status_code, "milliseconds above 0, not '0'" in reply.text) == (400, True)
            for time in ("0H", "0S", "0n", "00000000m"):
                assert await _status(grpc_port, time) == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
            assert await _status(grpc_port, "99999999H") == 0

    asyncio.run(main())


async def _status(port: int, time: str) -> int:
    """Of a call with this time; by frames, since grpc.aio's client would not send it."""
    message = infer_message().SerializeToString()
    headers = {"content-type": "application/grpc", "te": "trailers", "grpc-timeout": time}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", transport=Http2Transport(port)) as client:
        content = b"\0" + len(message).to_bytes(4, "big") + message
        reply = await client.post(MODEL_INFER, content=content, headers=headers)
    return int(reply.headers.get("grpc-status", 0))  # of an answer it is in the trailers


def test_no_time_is_without_limit(tmp_path: Path) -> None:
    for seconds, age_s in ((0, inf), (7.5, 7.5)):
        chosen = settings(tmp_path, max_connection_age_s=seconds)
        limits = connection_limits(chosen)
        assert limits.age_s(lambda: 0.5) == age_s
        assert times_of(grpc_options(chosen)).age_s == age_s
