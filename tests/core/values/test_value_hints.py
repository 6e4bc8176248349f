import numpy as np

from app.core.inference import STRING, ModelSignature, TensorSpec
from app.core.values.sample_inputs import hinted_inputs
from app.core.values.value_hints import Elements, Range, ValueHint, are_specific, pool_numbers, reject_zeros, sized

SIGNATURE = ModelSignature(
    "f",
    {
        "image": TensorSpec("image", STRING, (None,)),
        "ids": TensorSpec("ids", np.dtype(np.int64), (None, None)),
        "other": TensorSpec("other", np.dtype(np.float32), (None, 2)),
    },
    {},
)
HINTS = {
    "image": ValueHint((Elements((b"small", b"tiny")), Elements((b"large",))), takes_zero=False),
    "ids": ValueHint((Range(5, 7),), sizes={1: 3}),
}


def test_inputs_hold_values_of_the_pool_asked_for_or_of_the_last_one() -> None:
    inputs = hinted_inputs(SIGNATURE, HINTS, 4, 0)
    assert set(inputs["image"]) == {b"small", b"tiny"}
    assert inputs["ids"].shape == (4, 3)
    assert inputs["ids"].dtype == np.int64
    assert set(inputs["ids"].ravel()) <= {5, 6, 7}
    assert inputs["other"].shape == (4, 2)
    assert set(hinted_inputs(SIGNATURE, HINTS, 2, 1)["image"]) == {b"large"}


def test_what_hints_say_of_zeros() -> None:
    assert reject_zeros(HINTS)
    assert are_specific(HINTS)
    assert list(pool_numbers(HINTS)) == [0, 1]
    harmless = {"ids": ValueHint((Range(0, 7),))}
    assert not reject_zeros(harmless)
    assert not are_specific(harmless)
    assert are_specific({"word": ValueHint((Elements((b"red",)),))})


def test_a_size_that_is_known_takes_the_place_of_a_free_one_only() -> None:
    assert sized((None, None, 4), ValueHint(sizes={1: 3, 2: 9})) == (None, 3, 4)
    assert sized((None, None), None) == (None, None)


def test_elements_are_all_drawn_before_one_is_repeated() -> None:
    drawn = Elements((1.0, 2.0, 3.0)).draw((3,), np.dtype(np.float32), np.random.default_rng(1))
    assert sorted(drawn) == [1, 2, 3]
