"""64 connections kept busy by wrk on the digits model: requests/s, latency and the mean batch size.

Needs `wrk`. Usage: python -m bench.busy [--seconds 5] [--connections 64]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request

from bench.support.cache import ROOT
from bench.support.live_server import live_server

SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [==[{body}]==]
"""


def mean_batch(port: int) -> float:
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    labels = '{model="digits",signature="serving_default",version="1"}'
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return float(values[f"ferry_batch_rows_sum{labels}"]) / float(values[f"ferry_batch_rows_count{labels}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--least-mean-batch", type=float, default=0.0, help="exit 1 below this")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("bench.busy needs wrk (Debian: apt-get install wrk)")
    sample = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"][0]
    with live_server() as port, tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT.format(body=json.dumps({"instances": [sample["image"]]})))
        script.flush()
        url = f"http://127.0.0.1:{port}/v1/models/digits:predict"
        load = ["-t1", f"-c{arguments.connections}", f"-d{arguments.seconds}s", "--latency", "-s", script.name]
        report = subprocess.run(["wrk", *load, url], check=True, capture_output=True, text=True).stdout
        rows = mean_batch(port)
    print(report)
    print(f"mean batch size: {rows:.1f} rows")
    if "Non-2xx" in report or "Socket errors" in report or rows < arguments.least_mean_batch:
        sys.exit(1)


if __name__ == "__main__":
    main()
