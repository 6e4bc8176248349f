"""The conformance tester of HTTP/2: https://github.com/summerwind/h2spec, its strict suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.missing import skip_loudly

#: Beside the repository, or on the PATH.
TOOL = Path(__file__).parents[4] / "shared" / "tools" / "h2spec"

ALL = "147 tests, 147 passed, 0 skipped, 0 failed"


def report(server: str, *flags: str) -> str:
    """What it says of a server: a program that prints its port, and ends with its input.

    The tester waits for 2 s: in the process of all tests before, a collection of their garbage alone may take as long.
    """
    tool = os.environ.get("H2SPEC") or (str(TOOL) if TOOL.is_file() else shutil.which("h2spec"))
    if tool is None:
        skip_loudly("NO h2spec: WHETHER OUR HTTP/2 CONFORMS WAS NOT TRIED")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", server], **pipes) as running:
        assert running.stdout is not None
        command = [tool, "-h", "127.0.0.1", "-p", running.stdout.readline().strip(), "-S", *flags]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
        running.communicate("")
    assert running.returncode == 0
    return output
