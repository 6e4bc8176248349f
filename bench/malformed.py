"""A hundred thousand malformed requests to a real server of real models: codes, memory, and whether it still works.

    python -m bench.malformed --requests 100000 [--forms tensorflow_json,npy] [--protected]

`--protected`: over TLS, with a key that may do all but administration.
Exits with 1 if a request got an error of the server (5xx except 501, 503 and 504, or gRPC's equivalents) or no answer
within PATIENCE_S, if good requests got other numbers afterwards, or if memory grew in the second half of the run.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import grpc
import httpx
import yaml

from tests.hostile.attack import Attack, Tally
from tests.hostile.from_openapi import openapi_requests
from tests.hostile.hostile_requests import HostileRequests
from tests.hostile.served import answers, resident_mib, served_inputs
from tests.hostile.wire_requests import HttpRequest
from tests.support.processes import ROOT, ServerProcess, free_port, serving
from tests.transports.tls.certificates import Authority

#: The resident memory may grow by this much in the second half of the run.
MOST_GROWTH = 0.05
SLICES = 20
ONE_OF_OPENAPI = 25  # schemathesis makes a few hundred requests a second

_SHIPPED = ("digits", "text")
_MADE = ("every_dtype", "several_inputs", "half_plus_two")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forms", default="", help="only of these, separated by commas, and none of OpenAPI")
    parser.add_argument("--protected", action="store_true", help="over TLS, with a key")
    parser.add_argument("--minutes", type=float, default=30.0, help="a run that takes longer has failed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models, log, grpc_port = Path(folder) / "models", Path(folder) / "log", free_port()
        _make_models(models)
        protection = _protect(Path(folder)) if options.protected else _PLAIN
        settings = {"grpc_port": grpc_port, "log_level": "warning", **protection.settings}
        with serving(models, log, tls=protection.tls, **settings) as server:
            try:
                faults = asyncio.run(_attack(server, grpc_port, protection, options))
            except TimeoutError:
                faults = [f"Not done after {options.minutes:g} minutes"]
            if server.process.poll() is not None:
                faults.append(f"The server ended with {server.process.returncode}: {log.read_text()[-2000:]}")
        faults += [f"In the log: {line}" for line in set(re.findall(r".*Traceback.*", log.read_text()))]
    for fault in faults[:50]:
        print("VIOLATION", fault)
    print(f"{len(faults)} violations")
    return 1 if faults else 0


class Protection(NamedTuple):
    """How a server is reached, and `settings` that it has for this."""

    settings: Mapping[str, object]
    tls: ssl.SSLContext | None = None
    authority: bytes = b""
    key: str = ""

    @property
    def credential(self) -> dict[str, str]:
        return {"x-api-key": self.key} if self.key else {}

    def channel(self, port: int) -> grpc.aio.Channel:
        target = f"127.0.0.1:{port}"
        if not self.authority:
            return grpc.aio.insecure_channel(target)
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(self.authority))


_PLAIN = Protection({})


def _protect(folder: Path) -> Protection:
    authority = Authority(folder / "certificates")
    pair, key, access = authority.issue(), "ferry_of_the_attack", folder / "access.yaml"
    rules = {"models": ["*"], "permissions": ["infer", "metadata", "metrics"]}
    access.write_text(yaml.dump({"keys": [{"name": "a", "sha256": sha256(key.encode()).hexdigest(), **rules}]}))
    settings = {"access_file": access, "tls_certificate": pair.certificate, "tls_key": pair.key}
    tls = ssl.create_default_context(cafile=authority.certificate)
    return Protection(settings, tls, authority.certificate.read_bytes(), key)


def _make_models(folder: Path) -> None:
    """TensorFlow makes them in a process of its own: this one measures."""
    for name in _SHIPPED:
        shutil.copytree(ROOT / "models" / name, folder / name, ignore=shutil.ignore_patterns("*.py"))
    calls = "; ".join(f"savedmodels.make_{name}(Path(sys.argv[1]) / '{name}' / '1')" for name in _MADE)
    code = f"import sys; from pathlib import Path; from tests.support import savedmodels; {calls}"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, capture_output=True)


async def _attack(
    server: ServerProcess, grpc_port: int, protection: Protection, options: argparse.Namespace
) -> list[str]:
    faults: list[str] = []
    resident: list[int] = []
    async with (
        asyncio.timeout(options.minutes * 60),
        httpx.AsyncClient(
            base_url=server.url, timeout=60, verify=protection.tls or True, headers=protection.credential
        ) as http,
        protection.channel(grpc_port) as channel,
    ):
        models = await served_inputs(http)
        before = await answers(http, models)
        at_start = resident_mib(server.process.pid)
        print(f"Models: {', '.join(models)}. Seed {options.seed}. Resident {at_start} MiB at the start")
        forms = options.forms.split(",") if options.forms else []
        mutated = iter(HostileRequests(models, options.seed, forms))
        suggested = [] if forms else await _suggested(http, options)
        attack = Attack(int(server.url.rpartition(":")[2]), channel, tls=protection.tls, key=protection.key)
        for number in range(1, SLICES + 1):
            started = time.monotonic()
            here = suggested[len(suggested) * (number - 1) // SLICES : len(suggested) * number // SLICES]
            due = options.requests * number // SLICES - attack.tally.requests - len(here)
            await attack.send_all([*here, *islice(mutated, due)])
            resident.append(resident_mib(server.process.pid))
            rate = (due + len(here)) / (time.monotonic() - started)
            print(
                f"{attack.tally.requests:7d} requests, {rate:5.0f}/s, {resident[-1]} MiB,"
                f" {len(attack.tally.violations)} violations",
                flush=True,
            )
            if await answers(http, models) != before:
                faults.append(f"Good requests have other answers after {attack.tally.requests} requests")
    _print_codes(attack.tally)
    return faults + attack.tally.violations + _growth(resident)


async def _suggested(http: httpx.AsyncClient, options: argparse.Namespace) -> list[HttpRequest]:
    print("Making those of the OpenAPI document takes a minute for 4000", flush=True)
    return openapi_requests(
        (await http.get("/openapi.json")).json(), int(options.requests) // ONE_OF_OPENAPI, options.seed
    )


def _growth(resident: list[int]) -> list[str]:
    half, end = resident[len(resident) // 2 - 1], resident[-1]
    print(f"Resident: {half} MiB after the first half, {end} MiB at the end ({end / half - 1:+.1%})")
    return [f"Memory grew from {half} to {end} MiB"] if end > half * (1 + MOST_GROWTH) else []


def _print_codes(tally: Tally) -> None:
    for group, codes in sorted(tally.codes.items()):
        print(f"{group:16s} {codes.total():7d}  " + "  ".join(f"{code} {count}" for code, count in codes.most_common()))


if __name__ == "__main__":
    sys.exit(main())
