"""The gRPC port conforms to HTTP/2."""

from __future__ import annotations

from tests.transports.http2 import h2spec

SERVER = """
import asyncio, sys
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer

async def main():
    server = GrpcServer(GrpcOptions("127.0.0.1", 0), [], lambda: True)
    await server.start()
    print(server.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)

asyncio.run(main())
"""


def test_all_cases_of_the_strict_suite_pass() -> None:
    output = h2spec.report(SERVER)
    assert h2spec.ALL in output, output
