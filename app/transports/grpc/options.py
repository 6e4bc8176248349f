"""Where and how gRPC is served; of both engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.transports.tls.served_tls import ServedTls

#: Our own HTTP/2, or grpc.aio.
GrpcEngine = Literal["own", "aio"]


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Where and how to listen.

    `port` 0 takes a free one. `max_message_bytes` limits requests; replies are as large as the model makes them.
    `max_concurrent_calls` holds for each connection.
    Connections are as many as file descriptors allow, with `own` 10,000 at most (4,000 with TLS), with `aio` half of
    them for each of two addresses; a further one is closed. `unix_socket` is a path that serves the same services.
    `arguments` are gRPC's own channel arguments, by name.
    `max_age_s`: a connection is left after so many seconds, a tenth more or less by chance, and ends when its calls are
    answered: so clients come to new servers, too; 0: never. `drain_grace_s`: seconds between the signal to end and the
    drain.
    Without `own_port` none is opened for it: calls come by the port of REST.
    `tls` turns TLS on, for the socket too. `engine`: what serves; arguments that `own` does not know choose `aio`.
    """

    host: str = "0.0.0.0"  # noqa: S104 - a container serves its network
    port: int = 8500
    max_message_bytes: int = 64 * 1024**2
    unix_socket: str = ""
    max_concurrent_calls: int = 10_000
    arguments: Sequence[tuple[str, int | str]] = ()
    tls: ServedTls | None = None
    engine: GrpcEngine = "own"
    max_age_s: float = 0.0
    drain_grace_s: float = 0.0
    own_port: bool = True


def address_of(options: GrpcOptions) -> str:
    """As gRPC writes it: an IPv6 host in brackets."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{host}:{options.port}"
