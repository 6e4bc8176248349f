"""`/livez` and `/readyz` as connections answer them: of both versions of HTTP, and without the application."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any

import pytest

from app.transports.access_log import AccessLog
from app.transports.http.cors import EXPOSED_TO_ANY_ORIGIN
from app.transports.http.probes import LIVE, READY, Probes, probe_of
from app.transports.http2 import frames
from app.transports.http2.frames import PREFACE
from app.transports.http2.hpack import Decoder, encode_fields
from tests.support.fakes import run_in_fake_time
from tests.support.open_inference_world import FakeHealth
from tests.transports.http1.connection_world import World, request

Reply = tuple[int, dict[str, str], bytes]

OK = b'{"status":"ok","reasons":[],"problems":[]}'


@pytest.mark.parametrize(
    ("method", "target", "probe"),
    [
        (b"GET", b"/livez", LIVE),
        (b"HEAD", b"/readyz", READY),
        (b"GET", b"/readyz?verbose", READY),
        (b"POST", b"/livez", ""),
        (b"OPTIONS", b"/livez", ""),
        (b"GET", b"/livez/", ""),
        (b"GET", b"/live%7A", ""),
        (b"GET", b"http://here/livez", ""),
    ],
)
def test_a_probe_is_known_by_its_method_and_its_path_as_sent(method: bytes, target: bytes, probe: str) -> None:
    assert probe_of(method, target) == probe


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the application is asked")


def _asked(
    probe: bytes, health: FakeHealth | None = None, *, log: bool = False, cors: bool = False
) -> tuple[World, Reply]:
    """The answer of a connection whose application must not be asked."""

    async def main() -> World:
        probes = Probes(health or FakeHealth(), AccessLog(1.0, lambda: 0.0) if log else None)
        world = World(True, cors, application=_never, probes=probes)
        await world.hear(probe, 0.1)
        return world

    world = run_in_fake_time(main())
    if probe.startswith(b"HEAD"):
        head, _, rest = world.transport.out.partition(b"\r\n\r\n")
        assert not rest
        lines = head.decode().split("\r\n")
        return world, (int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:]), b"")
    (reply,) = world.replies()
    return world, reply


def _get(path: str = LIVE, method: str = "GET", version: str = "1.1", **headers: str) -> bytes:
    return request(path, b"", {"Content-Length": "", **headers}, method, version)


@pytest.mark.parametrize(
    ("path", "health", "status", "reasons", "problems"),
    [
        (LIVE, FakeHealth(), 200, [], []),
        (LIVE, FakeHealth(reasons_unready=["drains"]), 200, [], []),
        (LIVE, FakeHealth(reasons_dead=["broken"]), 503, ["broken"], []),
        (READY, FakeHealth(reasons_dead=["broken"], reasons_unready=["drains"]), 503, ["broken", "drains"], []),
        (READY, FakeHealth(told_problems=["m failed"]), 200, [], ["m failed"]),
        (READY, FakeHealth(reasons_unready=["m failed"], told_problems=["m failed"]), 503, ["m failed"], []),
    ],
)
def test_it_says_how_the_server_is(
    path: str, health: FakeHealth, status: int, reasons: list[str], problems: list[str]
) -> None:
    _, reply = _asked(_get(path), health)
    assert (reply[0], reply[1]["content-type"]) == (status, "application/json")
    told = {"status": "ok" if status == 200 else "not ok", "reasons": reasons, "problems": problems}
    assert json.loads(reply[2]) == told


def test_head_has_the_head_of_get_and_nothing_behind_it() -> None:
    of_get, of_head = (_asked(_get(method=method))[1] for method in ("GET", "HEAD"))
    assert of_head[:2] == of_get[:2]
    assert of_head[1]["content-length"] == str(len(OK))


@pytest.mark.parametrize(
    ("version", "asks", "says", "closed"),
    [
        ("1.1", "", None, False),
        ("1.1", "close", "close", True),
        ("1.0", "", "close", True),
        ("1.0", "keep-alive", "keep-alive", False),
    ],
)
def test_the_connection_stays_as_the_client_of_each_version_expects(
    version: str, asks: str, says: str | None, closed: bool
) -> None:
    world, (status, headers, _) = _asked(_get(version=version, Connection=asks))
    assert (status, headers.get("connection"), world.transport.closed) == (200, says, closed)


def test_its_reply_has_the_headers_of_all_replies() -> None:
    _, (_, headers, _) = _asked(_get(**{"X-Request-Id": "mine"}), cors=True)
    expected = {name.decode(): value.decode() for name, value in EXPOSED_TO_ANY_ORIGIN}
    assert headers.items() >= {**expected, "date": "today", "x-request-id": "mine"}.items()
    _, (_, headers, _) = _asked(_get())
    assert not expected.keys() & headers.keys()


def test_the_next_request_behind_it_is_answered_in_order() -> None:
    async def main() -> None:
        world = World(True, application=_never, probes=Probes(FakeHealth(reasons_unready=["drains"])))
        await world.hear(_get() + _get(READY) + _get(), 0.1)
        assert [status for status, _, _ in world.replies()] == [200, 503, 200]

    run_in_fake_time(main())


@pytest.mark.parametrize(("method", "size"), [("GET", str(len(OK))), ("HEAD", "?")])
def test_it_has_a_line_in_the_access_log(method: str, size: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        _asked(_get(LIVE + "?from=kubelet", method, **{"X-Request-Id": "mine"}), log=True)
    (line,) = caplog.messages
    assert re.fullmatch(
        rf"{method} /livez 200, {re.escape(size)} bytes, 0\.0+ s, client 127\.0\.0\.1.*, request mine", line
    )


# --- over HTTP/2 ---


def _over_http2(method: bytes, *, cors: bool = False) -> tuple[dict[bytes, bytes], bytes]:
    async def main() -> bytes:
        probes = Probes(FakeHealth(), AccessLog(1.0, lambda: 0.0))
        world = World(True, cors, application=_never, probes=probes)
        fields = [(b":method", method), (b":scheme", b"http"), (b":path", b"/livez"), (b":authority", b"here")]
        block = encode_fields([*fields, (b"x-request-id", b"mine")])
        head = frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, block)
        await world.hear(PREFACE + frames.settings([]) + head, 0.1)
        return world.transport.out

    out, block, content = run_in_fake_time(main()), b"", b""
    while out:
        high, low, kind, _, _ = frames.HEAD.unpack_from(out)
        end = frames.HEAD_BYTES + (high << 8 | low)
        payload, out = out[frames.HEAD_BYTES : end], out[end:]
        block += payload if kind == frames.HEADERS else b""
        content += payload if kind == frames.DATA else b""
    return dict(Decoder().decode(block).fields), content


@pytest.mark.parametrize(("method", "content"), [(b"GET", OK), (b"HEAD", b"")])
def test_http2_answers_the_same(method: bytes, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        fields, came = _over_http2(method, cors=True)
    assert came == content
    length = str(len(OK)).encode()
    expected = {**dict(EXPOSED_TO_ANY_ORIGIN), b":status": b"200", b"content-length": length, b"x-request-id": b"mine"}
    assert fields.items() >= expected.items()
    (line,) = caplog.messages
    assert line.startswith(f"{method.decode()} /livez 200, {len(content) or '?'} bytes")


def test_a_probe_is_answered_in_the_turn_in_which_it_comes() -> None:
    async def main() -> None:
        world = World(True, application=_never, probes=Probes(FakeHealth()))
        world.connection.data_received(_get())
        await asyncio.sleep(0.0)
        assert [status for status, _, _ in world.replies()] == [200]

    run_in_fake_time(main())
