from app.batching.call_statistics import Busyness


def test_busy_is_most_of_a_core_over_a_window() -> None:
    busyness = Busyness(100.0, 5.0)
    assert not busyness.note(100.01, 5.01)  # too early to say
    assert busyness.note(100.1, 5.09)
    assert busyness.note(100.12, 5.09)  # holds until the next window is over
    assert not busyness.note(100.2, 5.1)


def test_many_cores_are_busy_too() -> None:
    assert Busyness(0.0, 0.0).note(1.0, 16.0)


def test_a_silence_is_not_busy() -> None:
    busyness = Busyness(0.0, 0.0)
    assert busyness.note(1.0, 1.0)
    assert not busyness.note(61.0, 1.5)
