"""Runs an HTTP server until a signal ends it.

The order of stopping:
1. SIGTERM: the grace. For `drain_grace_s` the server is not ready, and serves as before, new connections too, while
   load balancers learn that. Each reply over HTTP says that its connection closes, and gRPC's connections get GOAWAY.
   At its end the port of gRPC closes, and the last of its clients hear of the end, within 3 s; idle connections of
   HTTP close, and requests that are arriving, or whose client has just connected, have 0.5 s to be accepted. SIGINT,
   which a person sends, has no grace, nor has a server without a ready model, to which nobody was sent.
2. `Engine.drain` rejects new requests and waits until all accepted ones are answered, at most `drain_timeout_s`.
3. For 0.5 s late requests are still answered, with 503.
4. The listening socket closes; who was connecting has 0.5 s to be connected (closing_listener.py), and who has
   connected by then is still answered, within 0.5 s. uvicorn closes the connections; replies that are being written get
   5 s (`CLOSE_TIMEOUT_S`).
5. The application's lifespan calls `Server.stop`: it stops gRPC (5 s again), unloads the models (at most 5 s) and ends
   the threads. If 2 ran out of time, gRPC gets no time and nothing is unloaded. Then the process ends; it does not wait
   for a load or a batch that is still running.
6. A second signal, also within the grace, drops what is not answered yet: no step waits any more, the log says how
   much it was, and the exit code is 1 if it was anything. Processes below a supervisor ignore it, since a service
   manager may have sent it to all; the supervisor tells them by a signal of its own
   (app/frontends/process_arguments.py).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from signal import Signals
from socket import socket

from app.config.settings import Settings
from app.server.http_app import HttpApp, HttpBackend
from app.transports.http.connections.connection_limits import ConnectionLimits, Connections
from app.transports.http.connections.http_handshakes import HttpHandshakes
from app.transports.http1.uvicorn_adapter import DrainingServer, HttpPort
from app.transports.ports import accepting_many
from app.transports.rest_http2.begin import RestHttp2


def serve_http(server: HttpBackend, settings: Settings, sockets: list[socket], at_once: Signals | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code: 0 if all accepted requests were answered.

    Args:
        sockets: what to listen on; bound, not yet listening.
        at_once: see DrainingServer.
    """
    app = HttpApp(server)
    limits = connection_limits(settings)
    connections = Connections(limits, app.fast_path.clock, server.listener, tls=bool(settings.tls_certificate))
    server.http_connections = connections.number
    uvicorn_server = DrainingServer(app, server, connections, ports_of(app, sockets, connections), at_once)
    uvicorn_server.run([])
    if not server.stopped:
        # Exit without waiting for a model that is still loading or a batch that is still running.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(uvicorn_server.exit_code)
    return uvicorn_server.exit_code


def ports_of(app: HttpApp, sockets: Sequence[socket], connections: Connections) -> list[HttpPort]:
    """The ports of these sockets: what answers on each, and with which TLS."""
    server, limits = app.server, connections.limits
    settings = server.settings
    of_operators = [each for each in sockets if each.getsockname()[1] == settings.operator_port]
    of_others = [each for each in sockets if each not in of_operators]

    # 1. The port of callers. gRPC alone may have TLS (--ssl_config_file).
    tls = server.tls if settings.tls_certificate else None
    port = HttpPort(accepting_many(of_others), app.fast_path, http2_of(app, limits))
    ports = [port if tls is None else port._replace(handshakes=HttpHandshakes(connections, tls))]

    # 2. That of operators.
    if of_operators:
        grpc = server.grpc.on_operator_port() if server.grpc is not None else None
        http2 = RestHttp2(app.operators_path, limits, grpc)
        port = HttpPort(accepting_many(of_operators), app.operators_path, http2)
        how = settings.operator_port_tls
        if tls is not None and how != "off":
            port = port._replace(handshakes=HttpHandshakes(connections, tls, verify=how == "same"))
        ports.append(port)
    return ports


def http2_of(app: HttpApp, limits: ConnectionLimits) -> RestHttp2:
    """HTTP/2 on the sockets of callers, with gRPC where it has no port of its own."""
    grpc = app.server.grpc
    return RestHttp2(app.fast_path, limits, grpc.on_rest_port() if grpc is not None else None)


def connection_limits(settings: Settings) -> ConnectionLimits:
    """The limits of connections, by the settings of the same names."""
    return ConnectionLimits(**{each.name: getattr(settings, each.name) for each in fields(ConnectionLimits)})
