"""A server that may open 200 files gets 300 connections of each kind."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.processes import ServerProcess, free_port, serving
from tests.support.waiting import HANG_S, wait_until

LIMIT = 200
COMMAND = (
    "-c",
    f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}));"
    "runpy.run_module('tests.server.numpy_process', run_name='__main__')",
)

HALF_A_BODY = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n{"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"


def test_clients_leave_the_server_the_descriptors_that_it_needs_and_probes_are_answered(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "models").mkdir()
    with serving(tmp_path / "models", tmp_path / "log", COMMAND, ready=False, grpc_port=port) as server:
        server.wait_for("/livez", 200)
        wait_until(lambda: _grpc_answers(port), "gRPC never answered")
        with ExitStack() as clients:
            for _ in range(300):
                _connect(clients, server.port, HALF_A_BODY)
                _connect(clients, port, HTTP2)
            for _ in range(5):
                assert server.client.get("/livez").status_code == 200
            assert server.client.get("/v1/models/m").status_code == 503
            assert _descriptors(server) < LIMIT - 48
            assert "escriptor limit" not in server.log.read_text()
        server.wait_for("/v1/models/m", 404)
        wait_until(lambda: _grpc_answers(port), "gRPC never answers again")


def _connect(clients: ExitStack, port: int, first: bytes) -> None:
    client = clients.enter_context(socket.create_connection(("127.0.0.1", port), HANG_S))
    with suppress(ConnectionError):  # rejected already
        client.sendall(first)


def _descriptors(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def _grpc_answers(port: int) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, suppress(grpc.RpcError):
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=HANG_S)
        return True
    return False
