"""`ferry serve` that rejects late requests for as long as it takes: `python -m tests.live.lingering`.

After a drain a server answers 503 for half a second, then it ends. This one ends at a second signal.
"""

from __future__ import annotations

import sys

from app.config.sources import load_settings
from app.frontends import supervisor
from app.server.single_process import serve
from app.transports.http1 import uvicorn_adapter
from tests.support.waiting import HANG_S

if __name__ == "__main__":
    uvicorn_adapter._LINGER_S = HANG_S
    supervisor.FRONTEND = "tests.live.lingering_frontend"
    settings = load_settings({})
    sys.exit(supervisor.supervise(settings) if settings.frontends else serve(settings))
