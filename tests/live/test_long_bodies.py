"""The processes that read long bodies live no longer than the server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from app.transports.http.http_api import LONG_BODY_BYTES
from tests.live.test_bodies import SAMPLE
from tests.support.bodies import as_json
from tests.support.processes import ARRANGEMENTS, ROOT, serving
from tests.support.waiting import HANG_S, wait_until

#: In the command line of such a process, and of no other.
READER = b"long_bodies.reader"


def readers_of(server: int) -> set[int]:
    """Readers that the process `server` has started, or one of its children."""
    parents: dict[int, int] = {}
    readers: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if READER in (folder / "cmdline").read_bytes():
                readers.add(int(folder.name))
        except OSError:
            continue  # it has ended
    return {each for each in readers if server in (parents[each], parents.get(parents[each]))}


def alive(process: int) -> bool:
    try:
        return READER in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_they_start_with_the_first_long_body_and_end_with_the_server(
    tmp_path: Path, frontends: int, number: signal.Signals
) -> None:
    with serving(ROOT / "models", tmp_path / "log", frontends=frontends, request_timeout_ms=HANG_S * 1e3) as server:
        pid = server.process.pid
        assert not readers_of(pid)
        body = as_json({"image": SAMPLE["image"]})
        url = "/v1/models/digits:predict"
        short = server.client.post(url, content=body)
        assert not readers_of(pid)
        long = server.client.post(url, content=body + b" " * LONG_BODY_BYTES)
        assert (long.status_code, long.content) == (short.status_code, short.content)
        readers = readers_of(pid)
        assert len(readers) == 1
        os.kill(pid, number)
        server.process.wait(HANG_S)
        wait_until(lambda: not any(map(alive, readers)), "a reader outlived its server")
