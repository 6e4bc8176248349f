"""Closed loop: wrk keeps connections busy with bodies in turn and counts every reply with an error status."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
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
local random = math.random
local function own_trace() -- as OpenTelemetry's clients and a mesh send them
  local a, b, c, d = random(0, 0x7fffffff), random(0, 0x7fffffff), random(0, 0x7fffffff), random(0, 0x7fffffff)
  return string.format("traceparent: 00-%08x%08x%08x%08x-%08x%08x-01\\r\\nx-request-id: %08x-%04x-4%03x-8%03x-%04x%08x",
    a, b, c, d, b, c, d, a % 65536, b % 4096, c % 4096, d % 65536, a)
end
function init(args)
  local wholes = {{}}
  for _, each in ipairs({{{bodies}}}) do
    local file = io.open(each.file, "rb")
    local whole = wrk.format("POST", each.path, each.headers, file:read("*a"))
    wholes[#wholes + 1] = whole
    file:close()
  end
  for n = 1, math.max(#wholes, {traced} and {own_traces} or 0) do
    local whole = wholes[(n - 1) % #wholes + 1]
    requests[n] = {traced} and whole:gsub("\\r\\n", "\\r\\n" .. own_trace() .. "\\r\\n", 1) or whole
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

#: So many requests with trace headers are made beforehand: more than any server keeps heads of.
_OWN_TRACES = 16384

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


def closed_loop(
    url: str,
    bodies: Sequence[Body],
    connections: int,
    seconds: float,
    *,
    paths: Sequence[str] = (),
    traced: bool = False,
) -> ClosedLoop:
    """wrk counts whole seconds.

    Args:
        paths: where the bodies go, in turn, if not all to the URL's path.
        traced: each request has a `traceparent` and an `x-request-id` of its own.

    Raises:
        RuntimeError: it does not run.
        subprocess.TimeoutExpired: it hangs.
    """
    whole = max(1, round(seconds))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(_script(bodies, _RAMP * whole, Path(folder), paths, traced=traced))
        load = ["-t1", f"-c{connections}", f"-d{whole}s", "--timeout", "30s", "-s", str(script), url]
        done = subprocess.run(["wrk", *load], capture_output=True, text=True, check=False, timeout=whole + 60)
    return read_report(done.stdout + done.stderr)


def read_report(report: str) -> ClosedLoop:
    lines = [line for line in report.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"wrk gave no result: {' '.join(report.split()) or 'no output'}")
    return ClosedLoop(**json.loads(lines[0].removeprefix("RESULT ")))


def _script(
    bodies: Sequence[Body], ramp_s: float, folder: Path, paths: Sequence[str] = (), *, traced: bool = False
) -> str:
    entries = []
    for n in range(lcm(len(bodies), len(paths) or 1)):
        body = bodies[n % len(bodies)]
        file = folder / f"body_{n % len(bodies)}"
        file.write_bytes(body.content)
        # The header must stand here: wrk.format takes these instead of wrk.headers.
        headers = ", ".join(f'["{name}"] = "{value}"' for name, value in {"Host": "127.0.0.1", **body.headers}.items())
        path = f'"{paths[n % len(paths)]}"' if paths else "nil"
        entries.append(f'{{file = "{file}", path = {path}, headers = {{{headers}}}}}')
    return _SCRIPT.format(bodies=", ".join(entries), ramp_s=ramp_s, traced=str(traced).lower(), own_traces=_OWN_TRACES)
