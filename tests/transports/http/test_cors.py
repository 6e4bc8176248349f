import asyncio
from typing import Any

import pytest

from app.transports.http.asgi import Message, Receive, Scope, Send
from app.transports.http.cors import AllowAnyOrigin
from app.transports.http.replies import HttpReply, send_reply

ORIGIN = (b"origin", b"https://page.example")
COOKIE = (b"cookie", b"a=b")
ANY = (b"access-control-allow-origin", b"*")


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    await send_reply(HttpReply(b"{}", 404), send)


def ask(method: str, *headers: tuple[bytes, bytes]) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    asyncio.run(AllowAnyOrigin(_application)({"type": "http", "method": method, "headers": [*headers]}, receive, send))
    return sent


def test_a_preflight_request_is_answered_by_the_middleware() -> None:
    start, _ = ask(
        "OPTIONS",
        ORIGIN,
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"content-type, x-mine"),
    )
    assert start["status"] == 200
    assert ANY in start["headers"]
    allowed = dict(start["headers"])
    assert b"POST" in allowed[b"access-control-allow-methods"]
    assert b"x-mine" in allowed[b"access-control-allow-headers"]


@pytest.mark.parametrize(
    ("method", "headers"),
    [("OPTIONS", []), ("OPTIONS", [ORIGIN]), ("POST", [ORIGIN]), ("POST", [ORIGIN, COOKIE]), ("GET", [])],
)
def test_every_other_request_is_answered_by_the_application_and_its_reply_is_marked(
    method: str, headers: list[tuple[bytes, bytes]]
) -> None:
    start, body = ask(method, *headers)
    assert start["status"] == 404
    assert ANY in start["headers"]
    assert (b"content-type", b"application/json") in start["headers"]
    assert body["body"] == b"{}"
