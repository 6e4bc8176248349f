from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from app.batching.shapes.buckets import ShapeBuckets
from app.batching.shapes.padding import NamedShape, ShapePadding
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.time_budget import TimeBudget
from app.loading.bucket_compilation import compile_buckets
from app.loading.padding_probe import ProbedPadding
from app.runtime import ShapeTrial

FLOAT32 = np.dtype(np.float32)


class Compilable:
    """Says of each trial what `gains` has, in their order."""

    def __init__(self, gains: Sequence[float], rank: int = 2) -> None:
        spec = TensorSpec("x", FLOAT32, (None,) * rank)
        self.signatures = {"f": ModelSignature("f", {"x": spec}, {"y": spec})}
        self.gains = gains
        self.trials: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        raise AssertionError("not called")

    def close(self) -> None: ...

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        gains = []
        for gain, trial in zip(self.gains, trials, strict=False):
            self.trials.append((trial.inputs["x"].shape, trial.shorter["x"].shape))
            gains.append(gain)
        return gains


def compiled(model: Compilable, shape: NamedShape, *buckets: int, sizes: Sequence[int] = (1, 2, 4)) -> ShapePadding:
    padding = ShapePadding({"x": shape}, {"y": shape}, {"x": 0}, ShapeBuckets(tuple(buckets)))
    compile_buckets(
        model, model.signatures, {"f": ProbedPadding(padding)}, sizes, lambda *_: None, budget=TimeBudget(9.0)
    )
    return padding


def test_each_bucket_is_tried_with_each_size_the_likely_ones_first() -> None:
    model = Compilable([2.0] * 99)
    padding = compiled(model, ("n",), 8, 32)
    assert [shape for shape, _ in model.trials] == [(1, 8), (1, 32), (4, 8), (4, 32), (2, 8), (2, 32)]
    assert [shorter for _, shorter in model.trials] == [(1, 4), (1, 20), (4, 6), (4, 27), (2, 5), (2, 24)]
    assert len(padding.compiled) == 6
    assert str(padding) == "x[?,n] -> y[?,n]; compiled for 8 (1, 2, 4 rows), 32 (1, 2, 4 rows)"


def test_calls_are_padded_to_what_gained() -> None:
    padding = compiled(Compilable([2.0, 0.0, 1.5]), ("n",), 8, 32)
    assert padding.compiled == {(1, ((8,),)), (4, ((8,),))}
    one = {"x": np.zeros((1, 5), FLOAT32)}
    assert padding.call_shape([one], 1) == ((8,),)
    assert padding.call_shape([one, one], 2) == ((5,),)
    assert padding.call_shape([{"x": np.zeros((1, 9), FLOAT32)}], 1) == ((9,),)
    padding.enabled = False
    assert padding.call_shape([one], 1) == ((5,),)


@pytest.mark.parametrize(("shape", "buckets"), [(("n",), ()), (("h", "w"), (8,))])
def test_without_named_buckets_of_one_dimension_nothing_is_tried(shape: NamedShape, buckets: tuple[int, ...]) -> None:
    model = Compilable([2.0] * 9, len(shape) + 1)
    assert compiled(model, shape, *buckets).compiled == frozenset()
    assert model.trials == []
