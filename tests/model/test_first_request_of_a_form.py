"""A first request of a new form costs linear work on the event loop, however many inputs and outputs it names."""

import sys
from collections.abc import Callable
from dataclasses import fields
from types import FrameType

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.inference import InferenceRequest, ModelSignature, TensorSpec
from app.placement import RequestPlacement
from tests.support.fakes import FakeLoadedModel

FLOAT = np.dtype(np.float32)


class CountedName(str):
    """A name whose comparisons are calls of Python, so that `operations` counts them."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True

    def __hash__(self) -> int:
        return str.__hash__(self)


def operations(work: Callable[[], object]) -> int:
    """The calls that `work` makes, of functions of Python and of C; each step of a generator is one."""
    count = 0

    def hear(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(hear)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def first_request(inputs: int, *, named: bool, finite_only: str) -> int:
    """The operations of placing it."""
    loaded = FakeLoadedModel()
    specs = {f"x{number:05}": TensorSpec(f"x{number:05}", FLOAT, (None,)) for number in range(inputs)}
    loaded.signatures = {"s": ModelSignature("s", specs, specs, finite_only=finite_only)}
    placement = RequestPlacement("m", 1, loaded, BatchSizes.powers_of_two(8), max_row_elements=1 << 20)
    arrays = {CountedName(name): np.zeros(2, np.float32) for name in specs}
    outputs = tuple([CountedName(name) for name in reversed(specs)]) if named else ()
    request = InferenceRequest(arrays, "s", outputs)  # type: ignore[arg-type]  # dict is invariant
    return operations(lambda: placement.place(request))


@pytest.mark.parametrize("finite_only", ["", "values mix"])
@pytest.mark.parametrize("named", [False, True])
def test_a_first_request_of_a_form_costs_as_much_more_as_it_has_more_inputs(named: bool, finite_only: str) -> None:
    few, many = (first_request(count, named=named, finite_only=finite_only) for count in (100, 400))
    assert 300 < many <= 4.1 * few
    assert many < 80 * 400


def test_what_follows_from_inputs_is_computed_once() -> None:
    spec = TensorSpec("x", FLOAT, (None,))
    signature = ModelSignature("s", {"x": spec}, {"y": spec})
    derived = [field.name for field in fields(ModelSignature) if not field.init]
    assert {"batchable", "shared", "shares_calls", "fixed_inner_shapes"} <= {*derived}
    assert operations(lambda: [getattr(signature, name) for name in derived]) <= 2 + 2 * len(derived)
