"""Closed loop over HTTP/2: h2load keeps streams busy with one body."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from bench.support.forms import Body

#: Connections share the streams.
_CONNECTIONS = 8


def closed_loop(url: str, body: Body, streams: int, seconds: float) -> float:
    """Answers a second. RuntimeError: some are no success; a gRPC call that failed has no message."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(body.content)
        headers = [f"--header={name}: {value}" for name, value in body.headers.items()]
        load = ["-t1", f"-c{_CONNECTIONS}", f"-m{streams // _CONNECTIONS}", f"-D{seconds:g}", f"-d{file.name}"]
        report = subprocess.run(
            ["h2load", *load, *headers, url], check=False, capture_output=True, text=True, timeout=seconds + 60
        )
    found = re.search(
        r"finished in \S+, (\S+) req/s.* (\d+) done, (\d+) succeeded.* \((\d+)\) data", report.stdout, re.DOTALL
    )
    if not found or len(set(found.group(2, 3))) > 1 or int(found[4]) < int(found[2]):
        raise RuntimeError(f"h2load: not each request has its answer: {report.stdout}{report.stderr}")
    return float(found[1])
