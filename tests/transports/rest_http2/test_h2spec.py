"""The port of REST conforms to HTTP/2, with TLS and without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.transports.http2 import h2spec

SERVER = """
import asyncio, sys
from pathlib import Path
import uvloop
from app import runtime
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.texts import TlsTexts
from tests.every_protocol.live import RUNTIME, live

runtime._REGISTRY[RUNTIME[0]] = RUNTIME[1]

async def main():
    tls = None
    if {tls}:
        texts = TlsTexts(*(Path("{folder}", name).read_bytes() for name in ("cert.pem", "key.pem")))
        tls = ServedTls(lambda: texts)
    async with live(Path("{folder}"), tls) as served:
        print(served.http.base_url.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)

uvloop.run(main())
"""

#: Its answer comes when the whole request has: else some cases would depend on which is faster.
PATH = "/v1/models/m:predict"


@pytest.mark.parametrize("tls", [False, True])
def test_all_cases_of_the_strict_suite_pass(tls: bool, certificate: tuple[bytes, bytes], tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(certificate[0])
    (tmp_path / "cert.pem").write_bytes(certificate[1])
    output = h2spec.report(SERVER.format(tls=tls, folder=tmp_path), "-P", PATH, *["-t", "-k"] * tls)
    failed = re.findall(r"× \d+: (.*)", output.partition("Failures:")[2])
    # Without TLS, what is no preface is a bad request of HTTP/1.1, and answered as one.
    assert failed == ([] if tls else ["Sends invalid connection preface"]), output
    assert tls or "147 tests, 146 passed, 0 skipped, 1 failed" in output
    assert not tls or h2spec.ALL in output
