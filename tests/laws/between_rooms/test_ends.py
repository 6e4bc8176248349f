"""What a server takes of the system comes back: when it has ended, its descriptors, threads, children and regions have
gone, whatever was under way.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.access.test_every_route import INFER, INFER_PATH, PREDICT_PATH
from tests.every_protocol.live import Live, live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place
from tests.support.waiting import HANG_S, wait_until

__all__ = ["runtime_in_place"]  # a fixture

#: So many numbers that another process reads them.
LONG = {"instances": [[1.0, 2.0]] * 4000}


#: The memory that a frontend shares with its engine. FastAPI remembers the routes of its pages, and so the frontend, as
#: long as this process lives; what it leaves when it connects anew is looked at by test_nothing_grows.py.
OF_FRONTENDS = "/memfd:ferry"


def taken() -> dict[str, Counter[str]]:
    """Of this process: open files by what they are, and threads and children by what they do."""
    gc.collect()
    files = Counter[str]()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            file = os.readlink(f"/proc/self/fd/{number}").partition(":[")[0]
            files[file] += not file.startswith(OF_FRONTENDS)
    threads = Counter(each.name.partition("_")[0] for each in threading.enumerate())
    return {"files": +files, "threads": threads, "children": Counter(_children())}


def _children() -> Iterator[str]:
    """The last words of each child's command, whatever thread has started it."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for number in (task / "children").read_text().split():
                yield Path(f"/proc/{number}/cmdline").read_text().rpartition("/")[2]


@pytest.fixture
def region() -> Iterator[Path]:
    path = Path("/dev/shm") / f"ferry_{uuid4().hex}"  # noqa: S108 - where POSIX shared memory lives
    path.write_bytes(bytes(64))
    yield path
    path.unlink()


async def use(running: Live, region: Path) -> asyncio.StreamWriter:
    """All that takes something: short and long bodies, files of the storage, a region, streams that go on.

    Returns what keeps the connection of one of them.
    """
    assert (await running.http.post(INFER_PATH, json=INFER)).status_code == 200
    assert (await running.http2.post(PREDICT_PATH, json=LONG)).status_code == 200
    if not running.server.settings.frontends:
        document = {"key": f"/{region.name}", "offset": 0, "byte_size": 64}
        registered = await running.http.post("/v2/systemsharedmemory/region/r/register", json=document)
        assert registered.status_code == 200, registered.text
    await running.server.repository.load("m")
    _, writer = await asyncio.open_connection("127.0.0.1", running.http.base_url.port)
    writer.write(b"POST /v1/models/m:predictStream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n")
    await writer.drain()
    call = running.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
    await call.write(b"")
    await call.read()
    return writer


@in_every_arrangement
def test_when_a_server_has_ended_nothing_of_it_is_left(tmp_path: Path, frontends: int, region: Path) -> None:
    more: dict[str, Any] = {"max_body_bytes": 10**6}
    if not frontends:
        more["allow_shared_memory"] = True

    async def life() -> dict[str, Counter[str]]:
        async with asyncio.timeout(HANG_S), live(tmp_path, frontends=frontends, **more) as running:
            writer = await use(running, region)
            found = taken()
            writer.close()
        return found

    asyncio.run(life())  # what is made at the first time stays
    before = taken()
    for _ in range(2):  # a child or a thread of the first life may have been about to end
        during = asyncio.run(life())
    assert during["children"].total() >= 2, "one reads files, another long bodies"
    assert during["threads"]["loader"], during["threads"]
    assert during["files"]["socket"] > before["files"]["socket"]
    wait_until(lambda: not any(more_than(before).values()), "something is left")


def more_than(before: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    return {kind: found - before[kind] for kind, found in taken().items()}
