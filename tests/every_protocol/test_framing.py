"""Requests end where RFC 9112 says, over sockets: in one process, with frontends, and under another ASGI server."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import uvicorn

from tests.every_protocol.live import live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place
from tests.support.waiting import HANG_S, until
from tests.transports.http1.rfc_cases import CASES, VALID, filled

__all__ = ["runtime_in_place"]  # a fixture

PATH = "/v1/models/m:predict"
BODY = json.dumps({"instances": [[1.0, 2.0]]}).encode()

#: Behind every case, so that the server closes the connection.
LAST = filled(VALID.replace(b"Host", b"Connection: close\r\nHost"), PATH, BODY)

UPGRADES = [case for case in CASES if case.source == "RFC 9110, 7.8"]


class PlainUvicorn(uvicorn.Server):
    """Leaves the signals to pytest."""

    def capture_signals(self) -> Any:
        return nullcontext()


async def statuses(port: int, sent: bytes) -> list[int]:
    """Of all replies until the connection ends."""
    async with asyncio.timeout(HANG_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        replies = await reader.read()
        writer.close()
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([2-9]\d\d) ", replies)]


@in_every_arrangement
def test_requests_end_where_the_rfc_says(tmp_path: Path, frontends: int) -> None:
    async def main() -> None:
        async with live(tmp_path, frontends=frontends) as served:
            port = served.http.base_url.port
            assert port is not None
            wrong = []
            for case in CASES:
                found = await statuses(port, case.sent(PATH, BODY) + LAST)
                if found != [*case.statuses, *([200] if len(case.statuses) == 2 else [])]:
                    wrong.append((str(case), found))
            assert not wrong

    asyncio.run(main())


def test_another_server_that_drops_the_body_of_an_upgrade_reads_none_of_it_as_a_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as served:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                server = PlainUvicorn(uvicorn.Config(served.app, lifespan="off", log_config=None))
                serving = asyncio.create_task(server.serve([listener]))
                await until(lambda: server.started)
                port = listener.getsockname()[1]
                for case in UPGRADES:
                    assert await statuses(port, case.sent(PATH, BODY) + LAST) == [400], case
                server.should_exit = True
                await serving

    asyncio.run(main())
