"""The driver of the application: what it promises is the same over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.fakes import run_in_fake_time
from tests.transports.http1.connection_world import World, request
from tests.transports.rest_http2.http2_client import Client, Reply

PATH = "/v1/nothing"

both_versions = pytest.mark.parametrize("version", ["1.1", "2"])


def answered(version: str, application: Any, *, expects: bool = False, body: bytes = b"") -> tuple[Reply, bytes]:
    """The reply to a POST, and all bytes that were written. `expects`: the client sends no body before a 100."""

    async def main() -> tuple[Reply, bytes]:
        world = World(True, application=application)
        if version == "2":
            client = Client(world)
            fields = [(b"expect", b"100-continue"), (b"content-length", b"5")] if expects else []
            number = client.ask(PATH, body, fields, sized=not expects, ended=not expects)
            return await client.reply(number, 1.0), client.transport.out
        headers = {"Expect": "100-continue", "Content-Length": "5"} if expects else {}
        await world.hear(request(PATH, body, headers), 1.0)
        ((status, named, content),) = world.replies()
        return Reply(status, named, content), world.transport.out

    return run_in_fake_time(main())


@both_versions
def test_a_response_that_has_begun_is_not_interrupted_by_a_100(version: str) -> None:
    """RFC 9110, section 15.2: an interim response comes before the final one."""

    async def application(_: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        reading = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"k"})
        assert await reading == {"type": "http.disconnect"}

    reply, written = answered(version, application, expects=True)
    assert (reply.status, reply.body, reply.interim) == (200, b"ok", [])
    assert b"100 Continue" not in written


@both_versions
@pytest.mark.parametrize("field", [(b"x\r\ny", b"a"), (b"x", b"a\0b"), (b"x", b"a\nb")])
def test_a_field_that_would_end_its_line_is_a_bug_of_the_application(
    version: str, field: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def application(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": [field]})

    reply, _ = answered(version, application)
    assert (reply.status, "x" in reply.headers) == (500, False)
    assert b"Internal error" in reply.body
    assert f"A bug ended POST {PATH}" in caplog.text


@both_versions
def test_an_application_that_fails_before_its_head_left_is_answered_for(version: str) -> None:
    """Though the response that it began would have had no content."""

    async def application(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        raise ValueError

    reply, _ = answered(version, application)
    assert reply.status == 500
    assert b"Internal error" in reply.body


@both_versions
def test_the_body_comes_whole_and_then_the_application_hears_that_nothing_more_will(version: str) -> None:
    heard: list[Any] = []

    async def application(_: Any, receive: Any, send: Any) -> None:
        heard.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Length", b"0")]})
        await send({"type": "http.response.body"})
        heard.append(await receive())

    reply, _ = answered(version, application, body=b"hello")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "0")
    assert heard == [{"type": "http.request", "body": b"hello", "more_body": False}, {"type": "http.disconnect"}]
