from __future__ import annotations

import asyncio

import pytest

from app.frontends.channel.messages import MessageKind, SendBuffer, new_unpacker


class Pipe(asyncio.WriteTransport):
    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False


def read(data: bytes) -> list[tuple[object, ...]]:
    unpacker = new_unpacker()
    unpacker.feed(data)
    return list(unpacker)


def test_messages_of_one_turn_are_one_write() -> None:
    async def main() -> list[bytes]:
        pipe = Pipe()
        send_buffer = SendBuffer(pipe, lambda: None)
        send_buffer.put(MessageKind.CANCEL, 1)
        send_buffer.put(MessageKind.CANCEL, 2)
        await asyncio.sleep(0)
        send_buffer.put(MessageKind.SYNCED)
        await asyncio.sleep(0)
        return pipe.writes

    first, second = asyncio.run(main())
    assert read(first) == [(MessageKind.CANCEL, 1), (MessageKind.CANCEL, 2)]
    assert read(second) == [(MessageKind.SYNCED,)]


def test_what_cannot_be_told_costs_no_other_message() -> None:
    async def main() -> list[bytes]:
        pipe = Pipe()
        send_buffer = SendBuffer(pipe, lambda: None)
        send_buffer.put(MessageKind.CANCEL, 1)
        with pytest.raises(TypeError):
            send_buffer.put(MessageKind.CANCEL, object())
        send_buffer.put(MessageKind.CANCEL, 2)
        await asyncio.sleep(0)
        return pipe.writes

    (written,) = asyncio.run(main())
    assert read(written) == [(MessageKind.CANCEL, 1), (MessageKind.CANCEL, 2)]
