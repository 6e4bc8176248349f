from app.transports.client_memory import ClientMemory


def test_what_is_held_leaves_no_room_for_more_and_an_empty_budget_takes_any_size() -> None:
    memory = ClientMemory(100)
    assert [memory.take_body(60), memory.take_body(41), memory.take_body(40)] == [True, False, True]
    assert memory.full
    memory.give_body(100)
    memory.change_unread(99)
    assert not memory.full
    memory.change_unread(1)
    assert memory.full
    assert not memory.take_body(1)
    memory.change_unread(-100)
    assert memory.take_body(1000)
    assert repr(memory) == "<ClientMemory 1000 + 0 of 100 bytes>"
    text = "Bodies under way and unread replies take 1,000 of 100 bytes, so no more is read"
    assert (str(memory.rejection()), memory.rejection().retry_after_s) == (text, 1.0)
