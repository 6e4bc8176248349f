"""gRPC's channel arguments as limits and times of connections, and which ones mean nothing here.

Source: https://github.com/grpc/grpc/blob/master/include/grpc/impl/channel_arg_names.h
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from app.transports.descriptors import grpc_connections
from app.transports.grpc.options import GrpcOptions
from app.transports.http2.limits import Http2Limits
from app.transports.http2.times import Times

logger = logging.getLogger(__name__)

_MOST_MESSAGE, _MOST_REPLY = "grpc.max_receive_message_length", "grpc.max_send_message_length"
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

_KNOWN = {_MOST_MESSAGE, _MOST_REPLY, _MOST_CONNECTIONS, _WITHOUT_CALLS, *_TIMES, *_LIMITS, *_PING_INTERVALS}

#: Values of arguments that ask for what this server does anyway.
_SO_ANYWAY = {"grpc.so_reuseport": 0, "grpc.per_message_compression": 0, "grpc.per_message_decompression": 1}

#: What an argument is or asks for, and why it changes nothing; the names without "grpc.".
_NOT_HERE = {
    "it is for clients": """
        TEST_ONLY_DO_NOT_USE_IN_PROD.xds_bootstrap_config address_http_proxy address_http_proxy_enabled_addresses
        channel_id channel_pooling_domain client_idle_timeout_ms default_authority disable_client_authority_filter
        dns_ares_query_timeout dns_enable_srv_queries dns_min_time_between_resolutions_ms enable_http_proxy
        enable_retries experimental.enable_hedging experimental.grpclb_channel_args grpclb_call_timeout_ms
        grpclb_fallback_timeout_ms happy_eyeballs_connection_attempt_delay_ms http2.initial_sequence_number
        http2_scheme http_proxy inhibit_health_checking initial_reconnect_backoff_ms lb.ring_hash.ring_size_cap
        lb_policy_name max_reconnect_backoff_ms min_reconnect_backoff_ms mobile_log_context per_rpc_retry_buffer_size
        primary_user_agent priority_failover_timeout_ms secondary_user_agent service_config
        service_config_disable_resolution ssl_session_cache ssl_target_name_override use_cronet_packet_coalescing
        use_local_subchannel_pool
    """,
    "its value is an object of the gRPC library": """
        authorization_policy_provider event_engine_use_memory_allocator_factory experimental.stats_plugins
        resource_quota socket_factory socket_mutator
    """,
    "it is for the gRPC library's statistics; /metrics and traces have others": """
        census enable_channelz loadreporting max_channel_trace_event_memory_per_node server_call_metric_recording
        surface_user_agent
    """,
    "it is for how the gRPC library reads and writes": """
        experimental.http2.enable_preferred_frame_size experimental.tcp_max_read_chunk_size
        experimental.tcp_min_read_chunk_size experimental.tcp_read_chunk_size
        experimental.tcp_tx_zerocopy_enabled experimental.tcp_tx_zerocopy_max_simultaneous_sends
        experimental.tcp_tx_zerocopy_send_bytes_threshold http2.write_buffer_size minimal_stack optimization_target
        tcp_receive_buffer_size tsi.max_frame_size workaround.cronet_compression
    """,
    "windows, frames and tables of HTTP/2 have their sizes": """
        http2.bdp_probe http2.hpack_table_size.decoder http2.hpack_table_size.encoder http2.lookahead_bytes
        http2.max_frame_size
    """,
    "pings are sent by keepalive_time_ms alone": "http2.max_pings_without_data http2.min_time_between_pings_ms",
    "calls do not wait before they begin": """
        server.max_pending_requests server.max_pending_requests_hard_limit server_max_unrequested_time_in_server
    """,
    "replies are not compressed": "per_message_compression",
    "compressed messages are read": "per_message_decompression",
    "binary metadata are base64": "http2.true_binary",
    "frontends share the port, and nothing else does": "so_reuseport",
    "the setting host says which addresses": "expand_wildcard_addrs",
    "packets are not marked": "dscp",
    "a configuration that changes ends no connection": "experimental.server_config_change_drain_grace_time_ms",
    "there are no security frames": "security_frame_allowed",
}
_WHY = {f"grpc.{name}": why for why, names in _NOT_HERE.items() for name in names.split()}

#: The seconds in place of a time of 0 or below. Chosen.
_LEAST_S = 1.0

#: Connections, where no argument says it. Chosen: what their clients may make them take, 128 KiB each and 320 KiB with
#: TLS (docs/architecture/threads-and-memory.md), is about 1.3 GB.
_MOST_PLAIN, _MOST_OF_TLS = 10_000, 4_000

#: The largest list of fields, as gRPC's own servers have it by default.
_METADATA_BYTES = 2**14


def warn_of_others(options: GrpcOptions) -> None:
    """Logs one line about the arguments that change nothing."""
    others = [f"{name} ({_why_not(name, value)})" for name, value in options.arguments if _why_not(name, value)]
    if others:
        logger.warning("Channel arguments of gRPC that change nothing here: %s", ", ".join(others))


def _why_not(name: str, value: int | str) -> str:
    """Why an argument changes nothing; empty if it is obeyed."""
    if name in _KNOWN:
        return "" if isinstance(value, int) else f"its value should be a whole number, not {value[:64]!r}"
    if value == _SO_ANYWAY.get(name):
        return ""
    return _WHY.get(name, "it is not known")


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


def times_of(options: GrpcOptions) -> Times:
    """The times that the options and the channel arguments say."""
    arguments = _numbers(options)
    seconds = {field: _seconds(arguments[name]) for name, field in _TIMES.items() if name in arguments}
    return replace(
        Times(
            keepalive_without_calls=bool(arguments.get(_WITHOUT_CALLS, 1)),
            age_s=options.max_age_s or inf,
            slow_s=options.slow_s,
            min_bytes_per_s=options.min_bytes_per_s,
        ),
        **seconds,  # type: ignore[arg-type]  # no name of these is that of a switch
    )


def _seconds(milliseconds: int) -> float:
    """The seconds of an argument; a time of 0 or below counts as `_LEAST_S`, since it would end every connection."""
    if milliseconds >= _NONE:
        return inf
    return milliseconds / 1e3 if milliseconds > 0 else _LEAST_S


def max_message_bytes(options: GrpcOptions) -> int:
    """The most bytes of a message: the argument, else the option; -1 of gRPC's is no limit."""
    most = _numbers(options).get(_MOST_MESSAGE, options.max_message_bytes)
    return most if most >= 0 else _NONE


def max_reply_bytes(options: GrpcOptions) -> int:
    most = _numbers(options).get(_MOST_REPLY, -1)
    return most if most >= 0 else _NONE


def max_connections(options: GrpcOptions) -> int:
    most = _MOST_OF_TLS if options.tls else _MOST_PLAIN
    return _numbers(options).get(_MOST_CONNECTIONS, min(most, grpc_connections()))


def _numbers(options: GrpcOptions) -> Mapping[str, int]:
    """The first of two values of a name counts, as for gRPC."""
    return {name: int(value) for name, value in reversed(options.arguments) if isinstance(value, int)}
