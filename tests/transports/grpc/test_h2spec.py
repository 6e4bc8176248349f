"""The conformance tester of HTTP/2 against our own engine: https://github.com/summerwind/h2spec, its strict suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.missing import skip_loudly

#: Beside the repository, or on the PATH.
TOOL = Path(__file__).parents[4] / "shared" / "tools" / "h2spec"

#: The tester waits for 2 s: in the process of all tests before, a collection of their garbage alone may take as long.
SERVER = """
import asyncio, sys
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer

async def main():
    server = GrpcServer(GrpcOptions("127.0.0.1", 0, engine="own"), [], lambda: True)
    await server.start()
    print(server.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)

asyncio.run(main())
"""


def test_all_cases_of_the_strict_suite_pass() -> None:
    tool = os.environ.get("H2SPEC") or (str(TOOL) if TOOL.is_file() else shutil.which("h2spec"))
    if tool is None:
        skip_loudly("NO h2spec: WHETHER OUR HTTP/2 CONFORMS WAS NOT TRIED")

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], **pipes) as server:  # it ends with its input
        assert server.stdout is not None
        command = [tool, "-h", "127.0.0.1", "-p", server.stdout.readline().strip(), "-S"]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
        server.communicate("")
    assert server.returncode == 0
    assert "147 tests, 147 passed, 0 skipped, 0 failed" in output, output
