from app.repository.version_policy import All, Latest, Specific


def test_latest_is_the_newest_by_number_and_nothing_of_nothing() -> None:
    assert Latest()({2, 10, 9}) == {10}
    assert Latest(2)({2, 10, 9}) == {9, 10}
    assert Latest(5)({2, 10, 9}) == {2, 9, 10}
    assert Latest()(()) == set()


def test_specific_takes_those_of_its_versions_that_there_are() -> None:
    assert Specific(frozenset({1, 10, 99}))({1, 2, 10}) == {1, 10}


def test_every_takes_all() -> None:
    assert All()([3, 1]) == {1, 3}
    assert All()(()) == set()
