"""One connection of the load generator, against servers on loopback that answer badly."""

import asyncio

import pytest

from app.bench.load_connection import BadReply, LoadConnection, ServerReply, connect
from tests.bench.scripted_server import OK, REQUEST, Answer, Scripted, always


def sent_to(answer: Answer) -> ServerReply:
    async def main() -> ServerReply:
        async with Scripted(answer) as port:
            connection = await connect("127.0.0.1", port)
            try:
                return await connection.send(REQUEST)
            finally:
                connection.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (always(OK), b"ok"),
        (always(OK[:9], OK[9:20], OK[20:]), b"ok"),
        (
            always(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"3;x=y\r\nabc\r\n",
                b"1\r\nd\r",
                b"\n0\r\n\r\n",
            ),
            b"abcd",
        ),
        (always(b"HTTP/1.1 200 OK\r\n\r\nto the end", close=True), b"to the end"),
        (always(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"), b"x"),
    ],
)
def test_a_reply_is_read_whole_however_it_is_framed(answer: Answer, body: bytes) -> None:
    assert sent_to(answer).body == body


@pytest.mark.parametrize(
    "answer",
    [
        always(b"SSH-2.0\r\n\r\n"),
        always(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
        always(OK[:-1], close=True),
        always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx", close=True),
        always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        always(b"", close=True),
    ],
)
def test_what_is_no_reply_is_an_error(answer: Answer) -> None:
    with pytest.raises(BadReply):
        sent_to(answer)


def test_a_closed_connection_sends_no_more() -> None:
    async def main() -> None:
        async with Scripted(always(OK)) as port:
            connection = await connect("127.0.0.1", port)
            connection.close()
            with pytest.raises(BadReply, match="closed"):
                await connection.send(REQUEST)

    asyncio.run(main())


def test_a_cancelled_request_takes_its_connection_along() -> None:
    async def main() -> bool:
        async def never(number: int, writer: asyncio.StreamWriter) -> None: ...

        async with Scripted(never) as port:
            connection = await connect("127.0.0.1", port)
            task = asyncio.create_task(connection.send(REQUEST))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            return connection.closed

    assert asyncio.run(main())


def test_an_interim_reply_is_not_taken_for_the_final_one() -> None:
    assert sent_to(always(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)).body == b"ok"


def test_a_reply_without_a_request_closes_the_connection() -> None:
    async def main() -> LoadConnection:
        async with Scripted(always(OK + OK)) as port:
            connection = await connect("127.0.0.1", port)
            await connection.send(REQUEST)
            return connection

    assert asyncio.run(main()).closed
