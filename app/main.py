"""`uvicorn app.main:app`: the application with its settings from the environment."""

from __future__ import annotations

import logging

from app.config.sources import load_settings
from app.log_lines import configure
from app.server.http_app import HttpApp
from app.server.server import Server

settings = load_settings({}, None)
configure(settings.log_level, settings.log_format)
if settings.frontends:
    logging.getLogger(__name__).warning("frontends does nothing under uvicorn; `ferry serve` starts them")
    settings = settings.model_copy(update={"frontends": 0})
if settings.single_port:
    logging.getLogger(__name__).warning("single_port leaves no gRPC under uvicorn, which speaks no HTTP/2")
app = HttpApp(Server(settings))
