"""Where and how gRPC is served; of both engines."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import grpc

#: Our own HTTP/2, or grpc.aio.
GrpcEngine = Literal["own", "aio"]


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's key and certificate, in PEM, and whose certificates it trusts.

    Attributes:
        client_ca: the authority of clients' certificates; empty for the system's.
        client_verify: clients must have one.
    """

    key: bytes
    certificate: bytes
    client_ca: bytes = b""
    client_verify: bool = False

    def credentials(self) -> grpc.ServerCredentials:
        pair = (self.key, self.certificate)
        return grpc.ssl_server_credentials([pair], self.client_ca or None, self.client_verify)

    def context(self) -> ssl.SSLContext:
        """For HTTP/2 (RFC 9113, section 9.2). Raises OSError."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["h2"])
        with open(os.memfd_create("certificate"), "wb") as file:  # ssl reads files only
            file.write(self.key + b"\n" + self.certificate)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        if self.client_verify:
            context.verify_mode = ssl.CERT_REQUIRED
            if self.client_ca:
                context.load_verify_locations(cadata=self.client_ca.decode())
        return context

    def __repr__(self) -> str:
        return f"<Tls{', clients are verified' if self.client_verify else ''}>"


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Where and how to listen.

    `port` 0 takes a free one. `max_message_bytes` limits requests; replies are as large as the model makes them.
    `max_concurrent_calls` holds for each connection.
    Connections are as many as file descriptors allow, with `own` 10,000 at most (2,000 with TLS), with `aio` half of
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
    tls: Tls | None = None
    engine: GrpcEngine = "own"
    max_age_s: float = 0.0
    drain_grace_s: float = 0.0
    own_port: bool = True


def address_of(options: GrpcOptions) -> str:
    """As gRPC writes it: an IPv6 host in brackets."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{host}:{options.port}"
