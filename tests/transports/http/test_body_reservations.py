"""What is made of a body beyond its size is reserved while it is read."""

from __future__ import annotations

import pytest

from app.core.errors import BodyOverMemory
from app.transports.http.body_reservations import reserved
from app.transports.memory.body_room import BINARY, BodyRoom
from app.transports.memory.client_memory import ClientMemory

MB = 2**20


def test_what_is_beyond_the_size_is_reserved_and_comes_back() -> None:
    memory = ClientMemory(room=BodyRoom(lambda: 140.0 * MB, lambda: 0.0, later=lambda *_: None))
    with reserved(memory, 60 * MB, MB):
        assert memory.room.reserved == (60 - BINARY) * MB
    with pytest.raises(ZeroDivisionError), reserved(memory, 60 * MB, MB):
        _ = 1 / 0
    assert memory.room.reserved == 0
    with pytest.raises(BodyOverMemory, match="may take 100 MB"), reserved(memory, 100 * MB, MB):
        pass
    with reserved(memory, 8 * MB, MB), reserved(None, 100 * MB, MB), reserved(ClientMemory(), 100 * MB, MB):
        assert memory.room.reserved == 0
