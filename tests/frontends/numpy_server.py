"""`ferry serve --frontends` with an engine that needs no TensorFlow: python -m tests.frontends.numpy_server"""

from __future__ import annotations

import sys

from app.config.sources import load_settings
from app.frontends.supervisor import supervise

if __name__ == "__main__":
    sys.exit(supervise(load_settings({}), "tests.frontends.numpy_engine"))
