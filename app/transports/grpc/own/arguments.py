"""gRPC's channel arguments as limits and times of our own connections.

Source: https://github.com/grpc/grpc/blob/master/include/grpc/impl/channel_arg_names.h
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from app.transports.descriptors import grpc_connections
from app.transports.grpc.options import GrpcOptions
from app.transports.http2.limits import Http2Limits
from app.transports.http2.times import Times

_MOST_MESSAGE = "grpc.max_receive_message_length"
_MOST_CONNECTIONS = "grpc.max_allowed_incoming_connections"

#: gRPC's own number for "no limit".
_NONE = 2**31 - 1

#: Argument -> field of Times, in seconds.
_TIMES = {
    "grpc.keepalive_time_ms": "keepalive_s",
    "grpc.keepalive_timeout_ms": "keepalive_timeout_s",
    "grpc.max_connection_idle_ms": "idle_s",
    "grpc.max_connection_age_ms": "age_s",
    "grpc.max_connection_age_grace_ms": "age_grace_s",
    "grpc.server_handshake_timeout_ms": "handshake_s",
}

#: Argument -> field of Http2Limits.
_LIMITS = {
    "grpc.max_concurrent_streams": "max_streams",
    "grpc.max_metadata_size": "max_list_bytes",
    "grpc.absolute_max_metadata_size": "max_list_bytes",
    "grpc.http2.max_ping_strikes": "max_ping_strikes",
}

_PING_INTERVALS = ("grpc.http2.min_ping_interval_without_data_ms", "grpc.http2.min_recv_ping_interval_without_data_ms")
_WITHOUT_CALLS = "grpc.keepalive_permit_without_calls"

#: What is as it says anyway: replies have no limit, a port is not shared, and HTTP/2 adapts its windows.
_TRUE = {
    "grpc.max_send_message_length": {-1},
    "grpc.so_reuseport": {0},
    "grpc.http2.bdp_probe": {0, 1},
}

#: For a time of 0 or below. Chosen.
_LEAST_S = 1.0

#: Connections, where no argument says it. Chosen: what their clients may make them take, 128 KiB each and 320 KiB with
#: TLS (app/server/client_memory_budget.py), is about 1.3 GB.
_MOST_PLAIN, _MOST_OF_TLS = 10_000, 4_000

#: The largest list of fields, as gRPC's own servers have it by default.
_METADATA_BYTES = 2**14


def unknown_arguments(options: GrpcOptions) -> list[str]:
    """The arguments that our own connections do not have, or not with this value."""
    known = {_MOST_MESSAGE, _MOST_CONNECTIONS, _WITHOUT_CALLS, *_TIMES, *_LIMITS, *_PING_INTERVALS}
    return [
        name
        for name, value in options.arguments
        if not (value in _TRUE[name] if name in _TRUE else name in known and isinstance(value, int))
    ]


def limits_of(options: GrpcOptions) -> Http2Limits:
    arguments = _numbers(options)
    limits = Http2Limits(max_streams=options.max_concurrent_calls, max_list_bytes=_METADATA_BYTES)
    changed = {field: arguments[name] for name, field in _LIMITS.items() if name in arguments}
    if "max_ping_strikes" in changed:
        changed["max_ping_strikes"] = changed["max_ping_strikes"] or -1  # gRPC's 0 is no limit
    limits = replace(limits, **changed)
    for name in _PING_INTERVALS:
        if name in arguments:
            limits = replace(limits, min_ping_interval_s=arguments[name] / 1e3)
    return limits


def times_of(options: GrpcOptions, times: Times) -> Times:
    """`times` with those that the arguments say."""
    arguments = _numbers(options)
    seconds = {field: _seconds(arguments[name]) for name, field in _TIMES.items() if name in arguments}
    seconds.setdefault("age_s", options.max_age_s or inf)
    times = replace(times, keepalive_without_calls=bool(arguments.get(_WITHOUT_CALLS, 1)), age_awaits_requests=False)
    return replace(times, **seconds)  # type: ignore[arg-type]  # no name of these is that of a switch


def _seconds(milliseconds: int) -> float:
    """Nothing takes no time: it would end every connection."""
    if milliseconds >= _NONE:
        return inf
    return milliseconds / 1e3 if milliseconds > 0 else _LEAST_S


def max_message_bytes(options: GrpcOptions) -> int:
    """-1 of gRPC's is no limit."""
    most = _numbers(options).get(_MOST_MESSAGE, options.max_message_bytes)
    return most if most >= 0 else _NONE


def max_connections(options: GrpcOptions) -> int:
    most = _MOST_OF_TLS if options.tls else _MOST_PLAIN
    return _numbers(options).get(_MOST_CONNECTIONS, min(most, grpc_connections()))


def _numbers(options: GrpcOptions) -> Mapping[str, int]:
    """The first of two values of a name counts, as for gRPC."""
    return {name: int(value) for name, value in reversed(options.arguments) if isinstance(value, int)}
