"""gRPC's channel arguments: those that are obeyed, and the line about those that are not."""

from __future__ import annotations

import logging
from math import inf

import pytest

from app.transports.grpc.arguments import limits_of, max_message_bytes, max_reply_bytes, times_of, warn_of_others
from app.transports.grpc.options import GrpcOptions
from app.transports.http2.limits import Http2Limits
from app.transports.http2.times import Times

#: All of https://github.com/grpc/grpc/blob/master/include/grpc/impl/channel_arg_names.h, without "grpc.".
OBEYED = """
    absolute_max_metadata_size http2.max_ping_strikes http2.min_ping_interval_without_data_ms
    keepalive_permit_without_calls keepalive_time_ms keepalive_timeout_ms max_allowed_incoming_connections
    max_concurrent_streams max_connection_age_grace_ms max_connection_age_ms max_connection_idle_ms max_metadata_size
    max_receive_message_length max_send_message_length server_handshake_timeout_ms
"""
OTHERS = """
    TEST_ONLY_DO_NOT_USE_IN_PROD.xds_bootstrap_config address_http_proxy address_http_proxy_enabled_addresses
    authorization_policy_provider census channel_id channel_pooling_domain client_idle_timeout_ms default_authority
    disable_client_authority_filter dns_ares_query_timeout dns_enable_srv_queries
    dns_min_time_between_resolutions_ms dscp enable_channelz enable_http_proxy enable_retries
    event_engine_use_memory_allocator_factory expand_wildcard_addrs experimental.enable_hedging
    experimental.grpclb_channel_args experimental.http2.enable_preferred_frame_size
    experimental.server_config_change_drain_grace_time_ms experimental.stats_plugins
    experimental.tcp_max_read_chunk_size experimental.tcp_min_read_chunk_size experimental.tcp_read_chunk_size
    experimental.tcp_tx_zerocopy_enabled experimental.tcp_tx_zerocopy_max_simultaneous_sends
    experimental.tcp_tx_zerocopy_send_bytes_threshold grpclb_call_timeout_ms grpclb_fallback_timeout_ms
    happy_eyeballs_connection_attempt_delay_ms http2.bdp_probe http2.hpack_table_size.decoder
    http2.hpack_table_size.encoder http2.initial_sequence_number http2.lookahead_bytes http2.max_frame_size
    http2.max_pings_without_data http2.min_time_between_pings_ms http2.true_binary http2.write_buffer_size http2_scheme
    http_proxy inhibit_health_checking initial_reconnect_backoff_ms lb.ring_hash.ring_size_cap lb_policy_name
    loadreporting max_channel_trace_event_memory_per_node max_reconnect_backoff_ms min_reconnect_backoff_ms
    minimal_stack mobile_log_context optimization_target per_message_compression per_message_decompression
    per_rpc_retry_buffer_size primary_user_agent priority_failover_timeout_ms resource_quota secondary_user_agent
    security_frame_allowed server_call_metric_recording server_max_unrequested_time_in_server service_config
    service_config_disable_resolution so_reuseport socket_factory socket_mutator ssl_session_cache
    ssl_target_name_override surface_user_agent tcp_receive_buffer_size tsi.max_frame_size
    use_cronet_packet_coalescing use_local_subchannel_pool workaround.cronet_compression
"""


def options(*arguments: tuple[str, int | str]) -> GrpcOptions:
    return GrpcOptions(arguments=[(f"grpc.{name}", value) for name, value in arguments])


def told(caplog: pytest.LogCaptureFixture, *arguments: tuple[str, int | str]) -> list[str]:
    caplog.clear()
    warn_of_others(options(*arguments))
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_each_argument_of_grpc_is_obeyed_or_named_with_what_it_means_here(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, *[(name, 17) for name in OBEYED.split()]) == []
    (line,) = told(caplog, *[(name, 17) for name in (*OBEYED.split(), *OTHERS.split(), "of_tomorrow")])
    beginning, _, named = line.partition(": ")
    assert beginning == "Channel arguments of gRPC that change nothing here"
    reasons = dict(each.split(" (", 1) for each in named.removesuffix(")").split("), "))
    assert set(reasons) == {f"grpc.{name}" for name in (*OTHERS.split(), "of_tomorrow")}
    assert [name for name, reason in reasons.items() if reason == "it is not known"] == ["grpc.of_tomorrow"]


def test_what_is_so_anyway_and_what_is_no_number(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog) == []
    assert told(caplog, ("so_reuseport", 0), ("per_message_compression", 0), ("max_send_message_length", -1)) == []
    assert told(caplog, ("keepalive_time_ms", "soon")) == [
        "Channel arguments of gRPC that change nothing here: "
        "grpc.keepalive_time_ms (its value should be a whole number, not 'soon')"
    ]


def test_each_argument_that_is_obeyed_changes_a_limit_or_a_time() -> None:
    def all_of(*arguments: tuple[str, int | str]) -> object:
        asked = options(*arguments)
        return limits_of(asked), times_of(asked), max_message_bytes(asked), max_reply_bytes(asked)

    for name in set(OBEYED.split()) - {"max_allowed_incoming_connections", "keepalive_permit_without_calls"}:
        assert all_of((name, 17)) != all_of(), name
    assert times_of(options(("keepalive_permit_without_calls", 0))).keepalive_without_calls is False


def test_nothing_given_is_what_a_connection_has_anyway() -> None:
    assert limits_of(GrpcOptions()) == Http2Limits()
    assert times_of(GrpcOptions()) == Times()
    assert times_of(GrpcOptions(slow_s=7.0, max_age_s=9.0)) == Times(slow_s=7.0, age_s=9.0)


@pytest.mark.parametrize("value", [0, -1])
def test_a_time_of_nothing_is_a_short_one(value: int) -> None:
    arguments = [("grpc.keepalive_time_ms", value), ("grpc.max_connection_idle_ms", value)]
    times = times_of(GrpcOptions(arguments=arguments))
    assert (times.keepalive_s, times.idle_s, times.age_s) == (1.0, 1.0, inf)
