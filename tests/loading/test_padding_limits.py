from collections.abc import Callable

import pytest

from app.batching.shapes.buckets import ShapeBuckets
from app.core.inference import Array
from app.loading.output_shapes import Sizes
from app.loading.padding_limits import ProvenSizes, neutral_up_to
from tests.loading.test_padding_probe import FRACTIONS, Mapping, embed, np, probe, refuse_unless

SMALL, LARGE = {"d": 9}, {"d": 19}


def climb(agrees: Callable[[int], bool | None], most: int = 10**6, *buckets: int) -> tuple[ProvenSizes, list[int]]:
    """`agrees` takes the longer row's size; `most` is the largest that is affordable."""
    tried: list[int] = []

    def both(first: Sizes, second: Sizes) -> bool | None:
        tried.append(second["d"])
        return agrees(second["d"])

    return neutral_up_to(both, lambda sizes: sizes["d"] <= most, SMALL, LARGE, ShapeBuckets(buckets)), tried


def test_the_ladder_ends_at_the_largest_bucket() -> None:
    found, tried = climb(lambda _: True, 10**6, 16, 100)
    assert (found, sorted(set(tried))) == (ProvenSizes({"d": 100}), [32, 64, 100])
    assert climb(lambda _: True, 10**6, 8) == (ProvenSizes({"d": 19}), []), "no bucket is longer than what was tried"


def test_without_buckets_it_ends_by_itself() -> None:
    assert climb(lambda _: True)[0] == ProvenSizes({"d": 8192})


def test_padding_ends_where_it_changes_answers() -> None:
    found = climb(lambda size: size <= 64)[0]
    assert found == ProvenSizes({"d": 64}, "padding changes the answers of longer ones")


def test_the_end_of_a_model_is_found() -> None:
    for end in (20, 40, 64, 100):
        assert climb(lambda size, end=end: True if size <= end else None)[0] == ProvenSizes({"d": end})
    assert climb(lambda size: None)[0] == ProvenSizes({"d": 19})


def test_what_takes_too_long_is_not_tried() -> None:
    found, tried = climb(lambda _: True, 50)
    assert found == ProvenSizes({"d": 32}, "longer ones take too long to try")
    assert max(tried) == 32


def test_one_difference_by_chance_does_not_end_it() -> None:
    calls: list[int] = []

    def agrees(size: int) -> bool:
        calls.append(size)
        return len(calls) != 2

    assert climb(agrees)[0] == ProvenSizes({"d": 8192})


def test_a_function_of_length_that_changes_beyond_64_is_padded_up_to_there() -> None:
    def changes(sent: Mapping[str, Array]) -> Array:
        length = sent["x"].shape[1]
        return np.asarray(sent["x"].sum(1) * (length if length > 64 else 1))

    probed = probe(changes, FRACTIONS)
    assert str(probed) == "padded: x[?,x.1] -> y[?]; up to x.1 = 64, as padding changes the answers of longer ones"
    padding = probed.padding
    assert padding is not None
    assert padding.bucket({"x": np.zeros((1, 64), np.float32)}) == ((64,),)
    assert padding.bucket({"x": np.zeros((1, 65), np.float32)}) is None


def test_padding_that_changes_answers_of_many_rows_is_found() -> None:
    def crowded(sent: Mapping[str, Array]) -> Array:
        return np.asarray(sent["x"].sum(1) + (sent["x"].shape[0] > 4) * sent["x"].shape[1])

    assert probe(crowded, FRACTIONS).reason == "padding changes the model's answers in calls of many rows"


@pytest.mark.parametrize("length", [40, 512])
def test_the_longest_that_a_model_takes_is_padded(length: int) -> None:
    def positions(sent: Mapping[str, Array]) -> Array:
        refuse_unless(sent["tokens"].shape[1] <= length)
        return embed(sent["tokens"])

    padding = probe(positions, {"tokens": (np.int32, (None, None))}).padding
    assert padding is not None
    assert padding.proven == {"tokens.1": length}
