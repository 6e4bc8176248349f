import pytest

from app.core.errors import BodyOverMemory
from app.core.events import Event, RequestsRefused
from app.transports.memory.body_room import BINARY, BodyRoom
from app.transports.memory.client_memory import ClientMemory

MB = 2**20


def test_what_is_held_leaves_no_room_for_more_and_an_empty_budget_takes_any_size() -> None:
    memory = ClientMemory(100)
    assert [memory.take_body(60), memory.take_body(16), memory.take_body(15)] == [True, False, True]
    assert not memory.full, "what comes whole is still read"
    assert [memory.has_room(26), memory.has_room(25)] == [False, True]
    memory.change_unread(25)
    assert memory.full
    memory.give_body(75)
    memory.change_unread(-25)
    memory.change_unread(99)
    assert not memory.full
    memory.change_unread(1)
    assert memory.full
    assert not memory.take_body(1)
    memory.change_unread(-100)
    assert memory.take_body(1000)
    assert not memory.full
    assert repr(memory) == "<ClientMemory 1000 + 0 of 100 bytes>"
    text = "Bodies under way and unread replies take 1,000 of 100 bytes, so no more is read"
    assert (str(memory.rejection()), memory.rejection().retry_after_s) == (text, 1.0)


def test_each_rejection_is_told() -> None:
    told: list[Event] = []
    ClientMemory(100, told.append).rejection()
    assert told == [RequestsRefused("memory")]


def test_what_is_beyond_the_size_is_reserved_and_comes_back() -> None:
    memory = ClientMemory(room=BodyRoom(lambda: 140.0 * MB, lambda: 0.0, later=lambda *_: None))
    with memory.reserved(60 * MB, MB):
        assert memory.room.reserved == (60 - BINARY) * MB
    with pytest.raises(ZeroDivisionError), memory.reserved(60 * MB, MB):
        _ = 1 / 0
    assert memory.room.reserved == 0
    with pytest.raises(BodyOverMemory, match="may take 100 MB"), memory.reserved(100 * MB, MB):
        pass
    with memory.reserved(8 * MB, MB), ClientMemory().reserved(100 * MB, MB):
        assert memory.room.reserved == 0
