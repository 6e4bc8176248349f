"""The options of a gRPC server: its address, its limits, TLS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.transports.tls.served_tls import ServedTls


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """The address, the limits and TLS of a gRPC server.

    `port` 0 takes a free one. `max_message_bytes` limits requests; replies are as large as the model makes them, unless
    `arguments` limit them.
    `max_concurrent_calls` holds for each connection.
    Connections are as many as file descriptors allow, 10,000 at most (4,000 with TLS); a further one is closed.
    `unix_socket` is a path that serves the same services.
    `arguments` are gRPC's own channel arguments, by name; arguments.py says what each means here.
    `max_age_s`: a connection is left after so many seconds, a tenth more or less by chance, and ends when its calls are
    answered: so clients come to new servers, too; 0: never. `slow_s`, `min_bytes_per_s`: see Times.
    Without `own_port` none is opened for it: calls come by the port of REST.
    `tls` turns TLS on, for the socket too.
    """

    host: str = "0.0.0.0"  # noqa: S104 - a container serves its network
    port: int = 8500
    max_message_bytes: int = 64 * 1024**2
    unix_socket: str = ""
    max_concurrent_calls: int = 10_000
    arguments: Sequence[tuple[str, int | str]] = ()
    tls: ServedTls | None = None
    max_age_s: float = 0.0
    slow_s: float = 60.0
    min_bytes_per_s: float = 16 * 1024
    own_port: bool = True


def address_of(options: GrpcOptions) -> str:
    """The address of host and port, as gRPC writes it: an IPv6 host in brackets."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{host}:{options.port}"
