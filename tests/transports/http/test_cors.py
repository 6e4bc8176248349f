import asyncio
from typing import Any

import pytest

from app.transports.http.asgi import Message, Receive, Scope, Send
from app.transports.http.cors import AllowAnyOrigin
from app.transports.http.replies import Reply, send_reply

ORIGIN = (b"origin", b"https://page.example")
ANY = (b"access-control-allow-origin", b"*")


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    await send_reply(Reply(b"{}", 404), send)


def ask(method: str, *headers: tuple[bytes, bytes]) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    asyncio.run(AllowAnyOrigin(_application)({"type": "http", "method": method, "headers": [*headers]}, receive, send))
    return sent


def test_options_of_a_page_are_answered_here() -> None:
    start, body = ask("OPTIONS", ORIGIN)
    assert start["status"] == 200
    assert ANY in start["headers"]
    assert any(name == b"access-control-allow-methods" and b"POST" in value for name, value in start["headers"])
    assert not body.get("body")


@pytest.mark.parametrize(("method", "headers"), [("OPTIONS", []), ("POST", [ORIGIN]), ("GET", [])])
def test_everything_else_is_the_applications_and_marked(method: str, headers: list[tuple[bytes, bytes]]) -> None:
    start, body = ask(method, *headers)
    assert start["status"] == 404
    assert ANY in start["headers"]
    assert (b"content-type", b"application/json") in start["headers"]
    assert body["body"] == b"{}"
