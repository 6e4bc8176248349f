from app.repository.policy import latest


def test_latest_is_the_newest_by_number_and_nothing_of_nothing() -> None:
    assert latest({2, 10, 9}) == {10}
    assert latest(()) == set()
