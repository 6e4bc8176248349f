"""Closed loop: wrk keeps connections busy with bodies in turn and counts every reply with an error status."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.support.forms import Body

#: wrk calls init once a thread; requests are made once and sent again and again.
#:
#: The rate counts answers between two of them: the last before the ramp is over and the last of all. Where batches
#: take a good part of a second, requests divided by seconds would leave out what is under way at the end, up to
#: all connections. A connection's next request shows that the one before was answered.
_SCRIPT = """
local ffi = require("ffi")
ffi.cdef[[ typedef struct {{ long s, ns; }} moment; int clock_gettime(int, moment *); ]]
local at = ffi.new("moment")
local requests, threads, ramp_end = {{}}, {{}}, 0
sent, first_sent, first_at, last_at = 0, 0, 0, 0
local function now()
  ffi.C.clock_gettime(1, at)
  return tonumber(at.s) + 1e-9 * tonumber(at.ns)
end
function setup(thread)
  table.insert(threads, thread)
end
function init(args)
  for _, each in ipairs({{{bodies}}}) do
    local file = io.open(each.file, "rb")
    requests[#requests + 1] = wrk.format("POST", nil, each.headers, file:read("*a"))
    file:close()
  end
end
function request()
  sent, last_at = sent + 1, now()
  if sent <= 2 then ramp_end = last_at + {ramp_s} end -- wrk asks for one before it begins
  if last_at < ramp_end then first_sent, first_at = sent, last_at end
  return requests[(sent - 1) % #requests + 1]
end
function done(summary, latency, all)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  local rate = summary.requests / summary.duration * 1e6
  local thread = threads[1]
  if thread:get("sent") > thread:get("first_sent") then
    rate = (thread:get("sent") - thread:get("first_sent")) / (thread:get("last_at") - thread:get("first_at"))
  end
  io.write(string.format('\\nRESULT {{"requests": %d, "seconds": %.6f, "rate": %.3f, "failed": %d, ',
    summary.requests, summary.duration / 1e6, rate, failed))
  io.write(string.format('"p50_ms": %.4f, "p90_ms": %.4f, "p99_ms": %.4f, "max_ms": %.4f}}\\n',
    latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
"""

#: The share of a run in which connections fall into step.
_RAMP = 0.2


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """One run. `failed` counts replies that are no success and broken connections.

    `rate` is that of the time after the ramp; `requests` and `seconds` count all of it.
    """

    requests: int
    seconds: float
    rate: float
    failed: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


def is_installed() -> bool:
    return shutil.which("wrk") is not None


def closed_loop(url: str, bodies: Sequence[Body], connections: int, seconds: float) -> ClosedLoop:
    """wrk counts whole seconds. Raises RuntimeError where it does not run, subprocess.TimeoutExpired where it hangs."""
    whole = max(1, round(seconds))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(_script(bodies, _RAMP * whole, Path(folder)))
        load = ["-t1", f"-c{connections}", f"-d{whole}s", "--timeout", "30s", "-s", str(script), url]
        done = subprocess.run(["wrk", *load], capture_output=True, text=True, check=False, timeout=whole + 60)
    return read_report(done.stdout + done.stderr)


def read_report(report: str) -> ClosedLoop:
    lines = [line for line in report.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"wrk gave no result: {' '.join(report.split()) or 'no output'}")
    return ClosedLoop(**json.loads(lines[0].removeprefix("RESULT ")))


def _script(bodies: Sequence[Body], ramp_s: float, folder: Path) -> str:
    entries = []
    for n, body in enumerate(bodies):
        file = folder / f"body_{n}"
        file.write_bytes(body.content)
        # The header must stand here: wrk.format takes these instead of wrk.headers.
        headers = ", ".join(f'["{name}"] = "{value}"' for name, value in {"Host": "127.0.0.1", **body.headers}.items())
        entries.append(f'{{file = "{file}", headers = {{{headers}}}}}')
    return _SCRIPT.format(bodies=", ".join(entries), ramp_s=ramp_s)
