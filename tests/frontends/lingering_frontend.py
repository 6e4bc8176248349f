"""A frontend of `tests.frontends.numpy_server --lingering`."""

from __future__ import annotations

import sys

from app.frontends.frontend import frontend_process
from app.frontends.process_arguments import received
from app.transports.http1 import uvicorn_adapter
from tests.support.waiting import HANG_S

if __name__ == "__main__":
    uvicorn_adapter._LINGER_S = HANG_S
    sys.exit(frontend_process.serve(received()))
