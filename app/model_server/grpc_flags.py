"""Flags of gRPC that are not settings of Ferry: TLS and channel arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from app.core.errors import InvalidRequest
from app.model_server.flags import Value
from app.model_server.text_files import read_tls
from app.transports.grpc.options import GrpcOptions
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.texts import TlsError, TlsTexts


def grpc_options_of(given: Mapping[str, Value], options: GrpcOptions) -> GrpcOptions:
    """`options`, with those that the flags add.

    Raises:
        InvalidRequest: a flag is wrong.
        TlsError: a file cannot be read or used.
    """
    options = replace(options, arguments=channel_arguments(str(given.get("grpc_channel_arguments", ""))))
    file = given.get("ssl_config_file")
    if not file:
        return options
    if options.tls is not None:
        raise InvalidRequest("--ssl_config_file gives TLS to gRPC, and FERRY_TLS_CERTIFICATE to all: give one of them")
    if not options.own_port:
        raise InvalidRequest("--ssl_config_file has no port of gRPC with FERRY_SINGLE_PORT; FERRY_TLS_CERTIFICATE has")
    return replace(options, tls=ServedTls(partial(_read, Path(str(file)))))


def _read(file: Path) -> TlsTexts:
    """The certificate and keys in an SSLConfig file. Raises TlsError."""
    try:
        return read_tls(file)
    except (InvalidRequest, OSError) as error:
        raise TlsError(f"--ssl_config_file: {error}") from None


def channel_arguments(text: str) -> Sequence[tuple[str, int | str]]:
    """'key=value,...' as pairs; whole numbers become int. Raises InvalidRequest."""
    pairs: list[tuple[str, int | str]] = []
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise InvalidRequest(f"--grpc_channel_arguments holds {part[:256]!r}, but should be key=value,...")
        pairs.append((key, int(value) if value.removeprefix("-").isdecimal() else value))
    return pairs
