"""Flags of gRPC that are not settings of Ferry: TLS and channel arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.core.errors import InvalidRequest
from app.model_server.flags import Value
from app.model_server.text_files import read_tls
from app.transports.grpc.options import GrpcOptions


def grpc_options_of(given: Mapping[str, Value], options: GrpcOptions) -> GrpcOptions:
    """`options`, with those that the flags add.

    Raises:
        InvalidRequest: a flag or a file is wrong.
        OSError: a file cannot be read.
    """
    arguments = channel_arguments(str(given.get("grpc_channel_arguments", "")))
    file = given.get("ssl_config_file")
    return replace(options, arguments=arguments, tls=read_tls(Path(str(file))) if file else None)


def channel_arguments(text: str) -> Sequence[tuple[str, int | str]]:
    """'key=value,...' as pairs; whole numbers become int. Raises InvalidRequest."""
    pairs: list[tuple[str, int | str]] = []
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise InvalidRequest(f"--grpc_channel_arguments holds {part[:256]!r}, but should be key=value,...")
        pairs.append((key, int(value) if value.removeprefix("-").isdecimal() else value))
    return pairs
