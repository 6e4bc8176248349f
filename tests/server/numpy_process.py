"""`ferry serve` in one process, with a model in numpy: python -m tests.server.numpy_process"""

from __future__ import annotations

import sys

from app import runtime
from app.config.sources import load_settings
from app.server.single_process import serve
from tests.every_protocol.live import RUNTIME

if __name__ == "__main__":
    runtime._REGISTRY["tensorflow"] = RUNTIME[1]
    runtime._MISSING_PART.clear()  # its models are empty files
    sys.exit(serve(load_settings({})))
