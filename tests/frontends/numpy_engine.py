"""The engine's process, with a model in numpy."""

from __future__ import annotations

import sys

from app import runtime
from app.frontends.engine.engine_forks import fork_engines
from app.frontends.engine.engine_process import serve
from tests.every_protocol.live import RUNTIME

if __name__ == "__main__":
    runtime._REGISTRY["tensorflow"] = RUNTIME[1]
    runtime._MISSING_PART.clear()  # its models are empty files
    sys.exit(fork_engines(serve, int))
