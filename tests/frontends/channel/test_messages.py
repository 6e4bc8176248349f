from __future__ import annotations

import asyncio
import os

import pytest

from app.frontends.channel.messages import MessageConnection, MessageKind, new_unpacker
from app.frontends.channel.shared_memory import SharedMemoryReader, create_memory


class Pipe(asyncio.Transport):
    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False


def connected_to(pipe: Pipe) -> MessageConnection:
    file = create_memory()
    connection = MessageConnection(SharedMemoryReader(file))
    os.close(file)
    connection.connection_made(pipe)
    return connection


def read(data: bytes) -> list[tuple[object, ...]]:
    unpacker = new_unpacker()
    unpacker.feed(data)
    return list(unpacker)


def test_messages_of_one_turn_are_one_write() -> None:
    async def main() -> list[bytes]:
        pipe = Pipe()
        connection = connected_to(pipe)
        connection.send(MessageKind.CANCEL, 1)
        connection.send(MessageKind.CANCEL, 2)
        await asyncio.sleep(0)
        connection.send(MessageKind.SYNCED)
        await asyncio.sleep(0)
        return pipe.writes

    first, second = asyncio.run(main())
    assert read(first) == [(MessageKind.CANCEL, 1), (MessageKind.CANCEL, 2)]
    assert read(second) == [(MessageKind.SYNCED,)]


def test_what_cannot_be_told_costs_no_other_message() -> None:
    async def main() -> list[bytes]:
        pipe = Pipe()
        connection = connected_to(pipe)
        connection.send(MessageKind.CANCEL, 1)
        with pytest.raises(TypeError):
            connection.send(MessageKind.CANCEL, object())
        connection.send(MessageKind.CANCEL, 2)
        await asyncio.sleep(0)
        return pipe.writes

    (written,) = asyncio.run(main())
    assert read(written) == [(MessageKind.CANCEL, 1), (MessageKind.CANCEL, 2)]
