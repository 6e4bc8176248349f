"""Clients of other languages: undici and fetch of Node, net/http of Go, HttpClient of Java, and curl --http2."""

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
    "java.net.http": ["java", str(HERE / "JavaHttpClient.java")],
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


def test_curl_that_asks_for_http_2_gets_its_answers(live: Live) -> None:
    """With `--http2` it sends `Upgrade: h2c`, which is ignored; the second request goes over the same connection."""
    url = f"http://{live.rest}/v1/models/half_plus_two:predict"
    ask = ["--silent", "--show-error", "--http2", "--write-out", "%{http_code} %{num_connects}\\n"]
    one, two = [[*ask, "--data", f'{{"instances": [{number}]}}', url] for number in (1, 2)]
    written = run(["curl", *one, "--next", *two], {})
    assert written.replace("\n", "").replace(" ", "") == '{"predictions":[2.5]}2001{"predictions":[3.0]}2000'
