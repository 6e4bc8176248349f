"""Endpoints: addresses, ports and sockets of HTTP and gRPC, and the limits of gRPC."""

from __future__ import annotations

from pydantic import BaseModel, Field, PositiveInt, ValidationInfo, field_validator


class EndpointSettings(BaseModel):
    """Addresses, ports, and the limits of gRPC."""

    host: str = Field("0.0.0.0", description="Address that HTTP and gRPC listen on. ::, all of IPv6 and IPv4.")  # noqa: S104 - a container
    rest: bool = Field(
        True, description="Serve HTTP. If off, only gRPC is served, and there are no health and metrics pages."
    )
    rest_port: int = Field(
        8501, ge=0, le=65535, description="HTTP port; the default is TensorFlow Serving's. 0 takes a free port."
    )
    grpc_port: int = Field(
        8500, ge=0, le=65535, description="gRPC port; the default is TensorFlow Serving's. 0 takes a free port."
    )
    single_port: bool = Field(
        False,
        description="Serve gRPC on rest_port, too, and open no grpc_port: HTTP/1.1, HTTP/2 and gRPC are told apart by "
        "what comes. A connection has the times of HTTP (keep_alive_s) until its first call of gRPC, and from then on "
        "those of gRPC.",
    )
    grpc_unix_socket: str = Field(
        "",
        description="Path of a Unix socket on which gRPC is served as well as on the port, by the first of the "
        "frontends if there are any. Empty: none.",
    )
    grpc_max_message_bytes: PositiveInt = Field(
        64 * 1024**2,
        le=2**31 - 1,
        description="Largest gRPC request in bytes. A larger one is rejected with RESOURCE_EXHAUSTED.",
    )
    grpc_max_concurrent_calls: PositiveInt = Field(
        10_000,
        le=2**31 - 1,
        description="Most calls at the same time on one gRPC connection. Further ones are refused with UNAVAILABLE.",
    )
    tensor_content: bool = Field(
        True,
        description="Write the outputs of TensorFlow Serving's gRPC as raw bytes, which is fast. If off, as lists of "
        "numbers.",
    )

    @field_validator("single_port")
    @classmethod
    def _single_port_is_one_of_rest(cls, single: bool, others: ValidationInfo) -> bool:
        if single and not others.data.get("rest", True):
            raise ValueError("false where rest is off: the port is REST's")
        return single
