"""Load generators against a live Ferry: each request is answered, with success."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.official_clients.conftest import Live
from tests.official_clients.environment import ENVIRONMENT, run
from tests.support.missing import skip_loudly

REQUESTS = 400
PATH = "/v1/models/half_plus_two:predict"


@pytest.fixture
def body(tmp_path: Path) -> str:
    file = tmp_path / "body.json"
    file.write_text('{"instances": [1.0, 2.0]}')
    return str(file)


def report(tool: str, *arguments: str) -> str:
    found = shutil.which(tool) or (ENVIRONMENT / f"node/node_modules/.bin/{tool}")
    if not Path(found).exists():
        skip_loudly(f"{tool} is NOT tried, for it is missing. Install it: .ci/packages, make clients")
    return run([str(found), *arguments], {})


@pytest.mark.parametrize("keep_alive", [True, False])
def test_ab(live: Live, body: str, keep_alive: bool) -> None:
    """It speaks HTTP/1.0, in which a connection stays open only if both say so."""
    keep = ["-k"] if keep_alive else []
    arguments = ["-n", str(REQUESTS), "-c", "8", *keep, "-p", body, "-T", "application/json"]
    told = report("ab", *arguments, f"http://{live.rest}{PATH}")
    assert f"Complete requests:      {REQUESTS}" in told
    assert "Failed requests:        0" in told
    assert "Non-2xx" not in told
    kept = re.search(r"Keep-Alive requests: +(\d+)", told)
    assert (int(kept[1]) if kept else 0) == (REQUESTS if keep_alive else 0)


def test_hey(live: Live, body: str) -> None:
    told = report(
        "hey", "-n", str(REQUESTS), "-c", "8", "-m", "POST", "-D", body, "-T", "application/json",
        f"http://{live.rest}{PATH}",
    )  # fmt: skip
    assert f"[200]\t{REQUESTS} responses" in told
    assert "Error distribution" not in told


def test_wrk(live: Live, tmp_path: Path, body: str) -> None:
    script = tmp_path / "post.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.body = io.open('{body}'):read('*a')\n")
    told = report("wrk", "-c", "8", "-t", "1", "-d", "1s", "-s", str(script), f"http://{live.rest}{PATH}")
    assert re.search(r"[1-9]\d* requests in", told)
    assert "Non-2xx" not in told
    assert "Socket errors" not in told


def test_h2load(live: Live, body: str) -> None:
    told = report(
        "h2load", "--h1", "-n", str(REQUESTS), "-c", "8", "-d", body, "-H", "Content-Type: application/json",
        f"http://{live.rest}{PATH}",
    )  # fmt: skip
    assert f"{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout" in told
    assert f"{REQUESTS} 2xx" in told


def test_autocannon(live: Live, body: str) -> None:
    told = report(
        "autocannon", "-c", "8", "-a", str(REQUESTS), "-m", "POST", "-i", body, "-j", "-n",
        "-H", "Content-Type=application/json", f"http://{live.rest}{PATH}",
    )  # fmt: skip
    found = json.loads(told[told.index("{") :])
    assert (found["2xx"], found["non2xx"], found["errors"], found["timeouts"]) == (REQUESTS, 0, 0, 0)
