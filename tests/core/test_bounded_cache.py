from app.core.bounded_cache import BoundedCache


def test_the_oldest_entry_makes_room() -> None:
    cache = BoundedCache[str, int](2)
    for number, key in enumerate("abc"):
        assert cache.keep(key, number) == number
    assert dict(cache) == {"b": 1, "c": 2}


def test_an_entry_that_is_replaced_costs_no_other_one() -> None:
    cache = BoundedCache[str, int](2)
    for key, number in (("a", 1), ("b", 2), ("a", 3)):
        cache.keep(key, number)
    assert dict(cache) == {"a": 3, "b": 2}


def test_what_is_in_use_is_spared() -> None:
    cache = BoundedCache[str, int](1, spared=lambda value: value > 0)
    cache.keep("used", 1)
    cache.keep("other", 0)
    cache.keep("third", 0)
    assert dict(cache) == {"used": 1, "third": 0}
