from app.core.events import Event, RequestsRefused
from app.transports.memory.client_memory import ClientMemory


def test_what_is_held_leaves_no_room_for_more_and_an_empty_budget_takes_any_size() -> None:
    memory = ClientMemory(100)
    assert [memory.take_body(60), memory.take_body(16), memory.take_body(15)] == [True, False, True]
    assert not memory.full, "what comes whole is still read"
    assert [memory.take_reply(26), memory.take_reply(25)] == [False, True]
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
