"""Closed loop: wrk keeps connections busy with bodies in turn, and counts every reply that is no success."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.forms import Body

#: wrk calls init once a thread; requests are made once and sent again and again.
_SCRIPT = """
local requests, sent = {{}}, 0
function init(args)
  for _, each in ipairs({{{bodies}}}) do
    local file = io.open(each.file, "rb")
    requests[#requests + 1] = wrk.format("POST", nil, each.headers, file:read("*a"))
    file:close()
  end
end
function request()
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end
function done(summary, latency, all)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('\\nRESULT {{"requests": %d, "seconds": %.6f, "failed": %d, ',
    summary.requests, summary.duration / 1e6, failed))
  io.write(string.format('"p50_ms": %.4f, "p90_ms": %.4f, "p99_ms": %.4f, "max_ms": %.4f}}\\n',
    latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
"""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """One run. `failed` counts replies that are no success and broken connections."""

    requests: int
    seconds: float
    failed: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate}


def is_installed() -> bool:
    return shutil.which("wrk") is not None


def closed_loop(url: str, bodies: Sequence[Body], connections: int, seconds: float) -> ClosedLoop:
    """wrk counts whole seconds. Raises RuntimeError where it does not run."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(_script(bodies, Path(folder)))
        load = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s", "-s", str(script), url]
        done = subprocess.run(["wrk", *load], capture_output=True, text=True, check=False)
    return read_report(done.stdout + done.stderr)


def read_report(report: str) -> ClosedLoop:
    lines = [line for line in report.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"wrk gave no result: {' '.join(report.split()) or 'no output'}")
    return ClosedLoop(**json.loads(lines[0].removeprefix("RESULT ")))


def _script(bodies: Sequence[Body], folder: Path) -> str:
    entries = []
    for n, body in enumerate(bodies):
        file = folder / f"body_{n}"
        file.write_bytes(body.content)
        # The header must stand here: wrk.format takes these instead of wrk.headers.
        headers = ", ".join(f'["{name}"] = "{value}"' for name, value in {"Host": "127.0.0.1", **body.headers}.items())
        entries.append(f'{{file = "{file}", headers = {{{headers}}}}}')
    return _SCRIPT.format(bodies=", ".join(entries))
