"""The conformance tester of HTTP/2 against our own engine: https://github.com/summerwind/h2spec, its strict suite."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from tests.support.missing import skip_loudly

#: Beside the repository, or on the PATH.
TOOL = Path(__file__).parents[4] / "shared" / "tools" / "h2spec"


def test_all_cases_of_the_strict_suite_pass() -> None:
    tool = os.environ.get("H2SPEC") or (str(TOOL) if TOOL.is_file() else shutil.which("h2spec"))
    if tool is None:
        skip_loudly("NO h2spec: WHETHER OUR HTTP/2 CONFORMS WAS NOT TRIED")

    async def main() -> str:
        server = GrpcServer(GrpcOptions("127.0.0.1", 0, engine="own"), [], lambda: True)
        await server.start()
        command = [tool, "-h", "127.0.0.1", "-p", str(server.port), "-S", "--timeout", "20"]
        tester = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await tester.communicate()
        await server.stop(0)
        return output.decode()

    output = asyncio.run(main())
    assert "147 tests, 147 passed, 0 skipped, 0 failed" in output, output
