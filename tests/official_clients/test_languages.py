"""Clients of other languages: undici and fetch of Node, net/http of Go. Each sends the same requests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.official_clients.conftest import Live
from tests.official_clients.environment import ENVIRONMENT, run
from tests.support.missing import skip_loudly

HERE = Path(__file__).parent / "languages"
MODULES = ENVIRONMENT / "node"

CLIENTS = {
    "undici": ["node", str(HERE / "undici_pool.cjs"), str(MODULES)],
    "fetch": ["node", str(HERE / "node_fetch.mjs")],
    "net/http": ["go", "run", str(HERE / "net_http.go")],
}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_request_gets_its_own_answer(live: Live, tmp_path: Path, client: str) -> None:
    command = CLIENTS[client]
    if not shutil.which(command[0]):
        skip_loudly(f"{client} is NOT tried, for {command[0]} is missing. Install it: .ci/packages")
    written = run([*command, f"http://{live.rest}"], {"GOCACHE": str(tmp_path), "GOFLAGS": "-mod=mod"})
    assert json.loads(written.splitlines()[-1]) == {
        "predictions": [number / 2 + 2 for number in range(200)],
        "missing": 404,
        "malformed": 400,
        "last_of_large": 19999 / 2 + 2,
    }
