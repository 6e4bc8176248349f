"""Everything in one process: `ferry serve`."""

from __future__ import annotations

import logging

from app.config.settings import Settings
from app.log_lines import configure
from app.repository.model_list_watch import WatchedModels
from app.server.grpc_servers import grpc_options
from app.server.http_server import serve_http
from app.server.memory import keep_freed_memory
from app.server.server import Server
from app.transports.descriptors import raise_limit
from app.transports.grpc.options import GrpcOptions
from app.transports.ports import PortNotFree, bind_ports
from app.transports.tls.texts import TlsError

logger = logging.getLogger(__name__)


def serve(settings: Settings, models: WatchedModels | None = None, grpc: GrpcOptions | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code: 0 if all accepted requests were answered.

    `models` are served instead of the folder that the settings name; `grpc` says how instead of the settings.
    """
    configure(settings.log_level, settings.log_format)
    keep_freed_memory()
    raise_limit()
    try:
        grpc = grpc or grpc_options(settings)
        sockets = list(bind_ports(settings.host, settings.http_ports if settings.rest else {}))
    except (PortNotFree, TlsError) as error:
        logger.error("%s", error)
        return 1
    server = Server(settings, models, grpc)
    server.first_lines.listens(sockets[0].getsockname()[1] if sockets else 0)
    return serve_http(server, settings, sockets)
