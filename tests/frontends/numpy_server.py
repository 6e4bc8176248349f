"""`ferry serve --frontends` with an engine that needs no TensorFlow: python -m tests.frontends.numpy_server

With `--lingering` its frontends reject late requests until a second signal (lingering_frontend.py).
"""

from __future__ import annotations

import sys

from app.config.sources import load_settings
from app.frontends.supervisor import supervise

if __name__ == "__main__":
    frontend = "tests.frontends.lingering_frontend" if "--lingering" in sys.argv else ""
    sys.exit(supervise(load_settings({}), "tests.frontends.numpy_engine", frontend))
