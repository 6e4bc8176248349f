"""Runs an HTTP server until a signal ends it."""

from __future__ import annotations

import logging
import os
import sys
from socket import socket
from typing import Protocol

from app.config.settings import Settings
from app.server.http_app import HttpBackend, create_app
from app.transports.http1.uvicorn_adapter import Drainable, DrainingServer, uvicorn_config


class StoppableBackend(HttpBackend, Drainable, Protocol):
    """A backend that can be drained; `stopped`: no model is in use or being loaded any more."""

    stopped: bool


def serve_http(server: StoppableBackend, settings: Settings, sockets: list[socket] | None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code: 0 if all accepted requests were answered.

    Args:
        sockets: what to listen on; None listens where the settings say.
    """
    app = create_app(server)
    uvicorn_server = DrainingServer(uvicorn_config(app, app.fast_path, settings.host, settings.rest_port), server)
    uvicorn_server.run(sockets)
    if not server.stopped:
        # Exit without waiting for a model that is still loading or a batch that is still running.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(uvicorn_server.exit_code)
    return uvicorn_server.exit_code
