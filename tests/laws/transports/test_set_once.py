"""What is set once holds in every place that it concerns: HTTP/2 has the limits and times of HTTP/1.1, each option of
gRPC follows its setting, all services of gRPC share what they are given, and both kinds of TLS contexts are kept apart;
and a time means the same whatever unit it comes in.
"""

from __future__ import annotations

import itertools
import socket
import ssl
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.config.settings import Settings
from app.frontends.frontend.frontend_server import FrontendServer
from app.server.grpc_servers import grpc_options
from app.server.http_app import HttpApp
from app.server.http_server import connection_limits, ports_of
from app.server.server import Server
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.request_head import read_head
from app.transports.http.connections.connection_limits import ConnectionLimits, Connections
from app.transports.http2.hpack import HeaderList
from app.transports.http2.protocol import Http2Connections
from app.transports.http2.request_fields import read_request
from app.transports.rest_http2.begin import RestHttp2
from app.transports.tls.served_tls import ServedTls
from tests.every_protocol.live import settings
from tests.every_protocol.suite import runtime_in_place
from tests.support.fakes import run_in_fake_time
from tests.transports.conftest import authority
from tests.transports.http1.connection_world import World
from tests.transports.tls.certificates import Authority

__all__ = ["authority", "runtime_in_place"]  # fixtures

# --- HTTP/2 ---

#: What of a connection of HTTP/2 each limit is; None where the one of HTTP/1.1 holds (a shared part looks at it).
OF_HTTP2: dict[str, Any] = {
    "max_head_bytes": lambda shared: shared.limits.max_list_bytes,
    "max_connection_age_s": lambda shared: shared.times.age_s,
    "keep_alive_s": lambda shared: shared.times.idle_s,
    "arrival_timeout_s": lambda shared: (shared.times.handshake_s, shared.times.slow_s),
    "min_body_bytes_per_s": lambda shared: shared.times.min_bytes_per_s,
    "max_body_bytes": None,  # the protocol's, and the request's own: rest_http2/request.py
    "max_connections": None,  # http/connections/connection_limits.py counts both
    "max_connections_per_address": None,  # likewise
}


def http2_of(limits: ConnectionLimits) -> Http2Connections:
    """As served beside HTTP/1.1."""
    found: list[Http2Connections] = []

    async def main() -> None:
        found.append(RestHttp2(World(True).connection._fast_path, limits)._connections)

    run_in_fake_time(main())
    return found[0]


@pytest.mark.parametrize("name", [each.name for each in fields(ConnectionLimits)])
def test_http2_has_the_limits_and_times_of_http1(name: str) -> None:
    read = OF_HTTP2[name]
    if read is not None:
        lower = getattr(ConnectionLimits(), name) // 3 + 1
        found = read(http2_of(replace(ConnectionLimits(), **{name: lower})))
        assert set(found if isinstance(found, tuple) else (found,)) == {lower}


# --- gRPC ---

#: The settings that each option follows, with values that are none's default; None: no setting chooses it.
OF_GRPC: dict[str, dict[str, Any] | None] = {
    "host": {"host": "127.0.0.2"},
    "port": {"grpc_port": 4242},
    "max_message_bytes": {"grpc_max_message_bytes": 12345},
    "unix_socket": {"grpc_unix_socket": "/tmp/ferry-socket"},  # noqa: S108 - nothing opens it
    "max_concurrent_calls": {"grpc_max_concurrent_calls": 77},
    "arguments": None,  # of ferry-model-server's flags
    "tls": {"tls_certificate": "c", "tls_key": "k"},
    "max_age_s": {"max_connection_age_s": 5.5},
    "slow_s": {"arrival_timeout_s": 7.5},
    "min_bytes_per_s": {"min_body_bytes_per_s": 100.0},
    "own_port": {"single_port": True},
}


@pytest.mark.parametrize("name", [each.name for each in fields(GrpcOptions)])
def test_each_option_of_grpc_follows_its_setting(name: str, tmp_path: Path, authority: Authority) -> None:
    changed = OF_GRPC[name]
    if changed is None:
        return
    if name == "tls":
        pair = authority.issue()
        changed = {"tls_certificate": str(pair.certificate), "tls_key": str(pair.key)}
    usual, other = grpc_options(Settings(models=tmp_path)), grpc_options(Settings(models=tmp_path, **changed))
    assert getattr(usual, name) != getattr(other, name)
    if name not in {"tls", "own_port"}:
        assert getattr(other, name) == next(iter(changed.values()))


@pytest.mark.parametrize("frontends", [0, 1])
def test_all_services_of_grpc_share_what_they_are_given(tmp_path: Path, frontends: int) -> None:
    """Callers, memory, credentials, processes that read, traces, the access log, and the longest time."""
    chosen = settings(
        tmp_path,
        frontends=frontends,
        fair_callers="address",
        memory_budget_mb=64,
        access_log=1.0,
        request_timeout_ms=1234.0,
        traces=True,
    )
    made: Server | FrontendServer = FrontendServer(chosen, tmp_path / "engine") if frontends else Server(chosen)
    assert made.grpc is not None
    calls = [each.calls for each in made.grpc.services]
    assert len({each.protocol for each in calls}) > 1
    for first, second in itertools.pairwise(calls):
        for name in ("memory", "callers", "allowed", "tracing", "_readers", "timeout_s", "listener"):
            assert getattr(first, name) == getattr(second, name), name
    for each in calls:
        assert each.callers is not None
        assert each.access is not None
        assert each.timeout_s == 1.234
        assert each.memory is made.memory


#: By unit of grpc-timeout.
UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("number", ["1", "7", "99999999"])
def test_a_time_of_grpc_is_in_its_unit(unit: str, number: str) -> None:
    """https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md: TimeoutUnit."""
    path = (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/B"), (b"content-type", b"application/grpc")
    headers = HeaderList((*path, (b"grpc-timeout", (number + unit).encode())), 100)
    headers.request = read_request(headers)
    head = read_head(headers)
    assert not head.fault
    assert head.timeout_s == pytest.approx(int(number) * UNITS[unit])


# --- TLS ---


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_a_port_without_certificates_of_clients_does_not_change_the_other_one(
    order: tuple[bool, bool], authority: Authority
) -> None:
    pair = authority.issue()
    tls = ServedTls.of(
        SimpleNamespace(
            tls_certificate=str(pair.certificate), tls_key=str(pair.key), tls_client_ca=str(authority.certificate)
        )
    )
    assert tls is not None
    for protocols in (("h2",), ("http/1.1",), ("h2", "http/1.1")):
        found = {verify: tls.context(protocols, verify=verify).verify_mode for verify in order}
        assert found == {True: ssl.CERT_REQUIRED, False: ssl.CERT_NONE}, protocols


def test_ports_of_callers_and_operators_have_the_same_limits(tmp_path: Path) -> None:
    """Other than those by default, over HTTP/1.1 and HTTP/2."""
    with socket.create_server(("127.0.0.1", 0)) as callers, socket.create_server(("127.0.0.1", 0)) as operators:
        chosen = settings(
            tmp_path,
            operator_port=operators.getsockname()[1],
            max_head_bytes=40_000,
            keep_alive_s=3,
            arrival_timeout_s=4,
        )
        limits = connection_limits(chosen)
        app = HttpApp(Server(chosen))
        ports = ports_of(app, [callers, operators], Connections(limits, app.fast_path.clock))
        shared = [port.http2._connections for port in ports if isinstance(port.http2, RestHttp2)]
        for port in ports:
            for each in port.sockets:
                each.close()
    assert len(shared) == 2
    assert len({(each.limits.max_list_bytes, each.times, each.memory) for each in shared}) == 1
    assert {each.times.idle_s for each in shared} == {3}
