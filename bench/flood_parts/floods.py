"""Floods: what one stranger sends at once, by a name. Pure.

Each is bytes for a number of connections. The first six are those of the measurement that turns of the event loop came
from; their sizes are its.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.transports.http2.hpack import encode_fields
from tests.transports.grpc import http2_floods
from tests.transports.grpc.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    grpc_call,
)

PREDICT = "/v1/models/digits:predict"

#: The most that a client may take without a word more: no reply waits for it (RFC 9113, sections 6.5.2 and 6.9).
_MOST = 2**31 - 1
_INITIAL_WINDOW_SIZE = 4
PREFACE = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame(SETTINGS, payload=struct.pack("!HI", _INITIAL_WINDOW_SIZE, _MOST))
    + frame(WINDOW_UPDATE, payload=struct.pack("!I", _MOST - 65_535))
)

_INFERENCE = "/inference.GRPCInferenceService/"


@dataclass(frozen=True, slots=True)
class Flood:
    """What is sent.

    Attributes:
        sends: the bytes of each connection.
        grpc: to the port of gRPC.
        http2: what TLS says it speaks.
        reads: the client reads the replies.
        times: each connection is opened and closed so often, one after the other.
        needs_tls: it is one of TLS.
    """

    sends: Callable[[], Sequence[bytes]]
    grpc: bool = False
    http2: bool = False
    reads: bool = True
    times: int = 1
    needs_tls: bool = False


# --- HTTP/1.1 ---


def _get(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: a", *lines, "", ""]).encode()


def _post(path: str, body: bytes, *lines: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


def _tiny_chunks(number: int) -> bytes:
    return f"POST {PREDICT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".encode() + (
        b"1;a=b\r\n \r\n" * number + b"0\r\n\r\n"
    )


def _large_head(size: int) -> bytes:
    return _get("/nothing", *(f"x-{number}: {'v' * 256}" for number in range(size // 264)))


_UPGRADE = _get("/metrics", "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABk")


# --- HTTP/2 ---


def _block(method: str, path: str) -> bytes:
    fields = ((":method", method), (":scheme", "http"), (":path", path), (":authority", "a"))
    return encode_fields([(name.encode(), value.encode()) for name, value in fields])


def _requests(method: str, path: str, number: int) -> bytes:
    block = _block(method, path)
    return PREFACE + b"".join(
        frame(HEADERS, END_HEADERS | END_STREAM, stream, block) for stream in range(1, 2 * number, 2)
    )


def _posts(path: str, body: bytes, number: int) -> bytes:
    block = _block("POST", path)
    return PREFACE + b"".join(
        frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body)
        for stream in range(1, 2 * number, 2)
    )


def _tiny_data(number: int) -> bytes:
    return PREFACE + frame(HEADERS, END_HEADERS, 1, _block("POST", PREDICT)) + frame(DATA, 0, 1, b"x") * number


def _frames(flood: str, requests: int) -> bytes:
    """Of a flood of frames that ask for nothing."""
    return PREFACE + b"".join(http2_floods.pieces(flood, requests))


# --- gRPC ---


def _calls(path: str, number: int, message: bytes = b"") -> bytes:
    return PREFACE + b"".join(grpc_call(stream, path, message) for stream in range(1, 2 * number, 2))


#: ServerReflectionRequest: list_services = "*".
_LIST_SERVICES = b"\x3a\x01*"


FLOODS: Mapping[str, Flood] = {
    # Of the measurement.
    "metrics by HTTP/2, 4 x 1000": Flood(lambda: [_requests("GET", "/metrics", 1000)] * 4, http2=True),
    "5000 ModelStatistics": Flood(lambda: [_calls(_INFERENCE + "ModelStatistics", 5000)], grpc=True, http2=True),
    "1000 batching pages": Flood(lambda: [_requests("GET", "/v1/models/digits/batching", 1000)], http2=True),
    "300 connections, metrics": Flood(lambda: [_get("/metrics")] * 300),
    "DATA of one byte, 3.9 MB": Flood(lambda: [_tiny_data(390_000)], http2=True),
    "chunks with extensions, 3 MB": Flood(lambda: [_tiny_chunks(300_000)]),
    # Frames that ask for nothing.
    "pings": Flood(lambda: [_frames("pings", 50_000)] * 4, http2=True),
    "settings": Flood(lambda: [_frames("settings", 50_000)] * 4, http2=True),
    "priorities": Flood(lambda: [_frames("priorities", 50_000)] * 4, http2=True),
    "rapid resets of calls": Flood(lambda: [_frames("rapid reset", 10_000)] * 4, grpc=True, http2=True),
    # Connections.
    "300 heads of 30 KB": Flood(lambda: [_large_head(30_000)] * 300),
    "10000 short connections": Flood(lambda: [_get("/v1/models/digits", "connection: close")] * 50, times=200),
    "2000 TLS handshakes": Flood(
        lambda: [_get("/v1/models/digits", "connection: close")] * 20, times=100, needs_tls=True
    ),
    "300 upgrades to HTTP/2": Flood(lambda: [_UPGRADE] * 300),
    "slow readers, 20 x 500 pages": Flood(lambda: [_get("/metrics") * 500] * 20, reads=False),
    # Cheap requests, many of them.
    "1000 metrics, pipelined": Flood(lambda: [_get("/metrics") * 1000] * 4),
    "10000 unknown paths": Flood(lambda: [_requests("GET", "/nothing", 10_000)], http2=True),
    "5000 OPTIONS": Flood(lambda: [_requests("OPTIONS", "/v1/models/digits", 5000)], http2=True),
    "10000 health checks": Flood(lambda: [_calls("/grpc.health.v1.Health/Check", 10_000)], grpc=True, http2=True),
    "2000 reflections": Flood(
        lambda: [_calls("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", 2000, _LIST_SERVICES)],
        grpc=True,
        http2=True,
    ),
    "2000 lists of models": Flood(lambda: [_posts("/v2/repository/index", b"{}", 2000)], http2=True),
    "200 OpenAPI documents": Flood(lambda: [_requests("GET", "/openapi.json", 200)], http2=True),
    # Bodies.
    "2000 bodies of bad JSON": Flood(lambda: [_posts(PREDICT, b'{"instances": [[1,', 2000)], http2=True),
    "deep JSON, 20 x 1 MB": Flood(lambda: [_post(PREDICT, b'{"instances": ' + b"[" * 10**6)] * 20),
    "base64 of garbage, 4 x 8 MB": Flood(lambda: [_post(PREDICT, _garbage(6 * 10**6))] * 4),
    "5000 predicts, pipelined": Flood(lambda: [_post(PREDICT, _row()) * 1250] * 4),
}


def _garbage(size: int) -> bytes:
    return b'{"instances": [{"b64": "%b"}]}' % base64.b64encode(bytes(range(251)) * (size // 251))


def _row() -> bytes:
    return b'{"instances": [[%b]]}' % b", ".join([b"[%b]" % b", ".join([b"0.0"] * 8)] * 8)
