"""What a request's function is made of, when requests run alone, and what is not checked again."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from app.batching.shapes.padding import ShapePadding
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceRequest, ModelSignature, TensorSpec
from app.placement import RequestPlacement
from tests.support.fakes import FakeLoadedModel, rows_of

SIZES = BatchSizes.powers_of_two(8)
FLOAT, LONG = np.dtype(np.float32), np.dtype(np.int64)


def spec(name: str, *shape: int | None, dtype: Any = FLOAT) -> TensorSpec:
    return TensorSpec(name, dtype, shape)


def placement_of(signature: ModelSignature, **more: Any) -> RequestPlacement:
    loaded = FakeLoadedModel()
    loaded.signatures = {signature.name: signature}
    return RequestPlacement("m", 3, loaded, SIZES, **more)


def words(*lengths: int) -> dict[str, Array]:
    return {"words": np.zeros(sum(lengths), np.float32), "splits": np.cumsum([0, *lengths], dtype=np.int64)}


RAGGED = ModelSignature(
    "s",
    {"words": spec("words", None), "splits": spec("splits", None, dtype=LONG)},
    {"y": spec("y", None), "longer": spec("longer", None), "ends": spec("ends", None, dtype=LONG)},
    ragged={"words": ("splits",)},
    ragged_outputs={"longer": ("ends",)},
)
PAIR = ModelSignature("s", {"x": spec("x", None, 2)}, {"y": spec("y", None, 2), "w": spec("w", None, 2)})
FREE = ModelSignature("s", {"x": spec("x", None, None)}, {"y": spec("y", None, None)})


def ask(inputs: dict[str, Array], *outputs: str) -> InferenceRequest:
    return InferenceRequest(inputs, "s", outputs)


@pytest.mark.parametrize("padded", [False, True])
def test_a_form_that_was_accepted_is_not_checked_again(monkeypatch: pytest.MonkeyPatch, padded: bool) -> None:
    paddings = {"s": ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0})} if padded else {}
    placement = placement_of(FREE, paddings=paddings)
    first = placement.place(ask({"x": np.zeros((2, 5), np.float32)}))

    def again(*_: object) -> None:
        raise AssertionError("checked again")

    monkeypatch.setattr("app.placement.check_shapes", again)
    for rows in (2, 0, 7):
        key, function, found = placement.place(ask({"x": np.zeros((rows, 5), np.float32)}))
        assert (key, function, found) == (first[0], first[1], rows)
    with pytest.raises(AssertionError):
        placement.place(ask({"x": np.zeros((2, 6), np.float32)}))


def test_forms_of_several_inputs_are_not_checked_again_either(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES)
    x = rows_of(1.0, 3)["x"]
    placement.place(InferenceRequest({"x": x, "z": x}, "pair"))
    monkeypatch.setattr("app.placement.check_shapes", None)
    assert placement.place(InferenceRequest({"x": x[:1], "z": x[:1]}, "pair"))[2] == 1


def test_ragged_rows_are_counted_anew_whatever_lengths_came_before() -> None:
    placement = placement_of(RAGGED)
    assert placement.place(ask(words(1, 2, 3)))[2] == 3
    assert placement.place(ask(words(1, 2)))[2] == 2  # as many values as splits
    assert placement.place(ask(words(4)))[2] == 1
    with pytest.raises(InvalidRequest, match="must be row splits"):
        placement.place(ask({**words(1, 2), "splits": np.array([0, 1, 2])}))


def test_ragged_rows_are_joined_and_their_outputs_parted() -> None:
    function = placement_of(RAGGED).place(ask(words(1, 2)))[1]
    assert function.ragged is not None
    assert function.ragged_outputs is not None
    assert (function.ragged.splits, function.ragged_outputs.splits) == ({"words": ("splits",)}, {"longer": ("ends",)})
    plain = placement_of(PAIR).place(ask(rows_of(1.0)))[1]
    assert (plain.ragged, plain.ragged_outputs) == (None, None)


@pytest.mark.parametrize(
    ("outputs", "batchable", "parted"),
    [
        ((), True, {"longer": ("ends",)}),
        (("longer", "ends"), True, {"longer": ("ends",)}),
        (("y",), True, {}),
        (("longer",), False, None),
        (("ends", "y"), False, None),
    ],
)
def test_a_ragged_output_without_its_splits_runs_alone(
    outputs: tuple[str, ...], batchable: bool, parted: Mapping[str, object] | None
) -> None:
    _, function, rows = placement_of(RAGGED).place(ask(words(1, 2), *outputs))
    assert (function.batchable, rows) == (batchable, 2 if batchable else 1)
    if parted is not None:
        assert function.ragged_outputs is not None
        assert function.ragged_outputs.splits == parted


@pytest.mark.parametrize(
    ("outputs", "batchable"), [((), False), (("w",), False), (("y",), True), (("y", "w"), False), (("w", "y"), False)]
)
def test_who_wants_an_output_that_is_computed_alone_runs_alone(outputs: tuple[str, ...], batchable: bool) -> None:
    signature = ModelSignature("s", PAIR.inputs, PAIR.outputs, alone={"w": "its rows see each other"})
    key, function, rows = placement_of(signature).place(ask(rows_of(1.0, 3), *outputs))
    assert (function.batchable, rows, key.shape) == ((True, 3, ((2,),)) if batchable else (False, 1, ()))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_where_only_finite_numbers_share_calls_who_holds_others_runs_alone_also_in_a_form_seen_before(
    odd: float,
) -> None:
    placement = placement_of(ModelSignature("s", PAIR.inputs, PAIR.outputs, finite_only="it loops"))
    good = rows_of(1.0, 3)
    for _ in range(2):
        key, function, rows = placement.place(ask(good))
        assert (function.batchable, rows, key.shape) == (True, 3, ((2,),))
        bad = {"x": good["x"].copy()}
        bad["x"][1, 1] = odd
        key, function, rows = placement.place(ask(bad))
        assert (function.batchable, rows, key.shape) == (False, 1, ())
    assert placement_of(PAIR).place(ask(bad))[1].batchable


@pytest.mark.parametrize("more", [{"batching": False}, {"strict_shapes": False}])
def test_what_runs_alone_is_neither_padded_nor_planned_by_costs_of_batches(more: dict[str, bool]) -> None:
    padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0})
    placement = placement_of(FREE, paddings={"s": padding}, costs={"s": {1: 0.5, 8: 1.0}}, **more)
    inputs = {"x": np.zeros((2, 5, 1) if "strict_shapes" in more else (2, 5), np.float32)}
    key, function, rows = placement.place(ask(inputs))
    assert (function.batchable, function.padding, function.initial_estimates, rows) == (False, None, None, 1)
    assert (function.max_rows, key.shape, key.padded) == (1, (), False)


def test_a_function_begins_with_the_costs_that_were_measured_at_warm_up() -> None:
    costs = {"s": {1: 0.5, 8: 1.0}}
    function = placement_of(PAIR, costs=costs).place(ask(rows_of(1.0)))[1]
    assert function.initial_estimates == costs["s"]
    assert function.sizes == SIZES
    assert (curve := function.costs(((2,),)).curve) is not None
    assert [curve.call_s(rows) for rows in (1, 8)] == [0.5, 1.0]
    assert placement_of(PAIR).place(ask(rows_of(1.0)))[1].initial_estimates is None


def test_callers_see_the_signatures_that_are_given() -> None:
    signature = ModelSignature("s", {**PAIR.inputs, "m": spec("m", None, 2)}, PAIR.outputs, masks={"m": "x"})
    placement = placement_of(ModelSignature("s", signature.inputs, PAIR.outputs), signatures={"s": signature})
    assert placement.signatures["s"] is signature
    request = ask(rows_of(1.0, 3))
    assert placement.place(request)[2] == 3
    assert request.inputs["m"].tolist() == [[1.0, 1.0]] * 3
    with pytest.raises(InvalidRequest, match="missing 'm'"):
        placement_of(ModelSignature("s", signature.inputs, PAIR.outputs)).place(ask(rows_of(1.0)))


def test_each_replica_runs_the_signature_and_the_wanted_outputs() -> None:
    calls: list[tuple[int, str, tuple[str, ...]]] = []

    class Replica(FakeLoadedModel):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.signatures = {"s": PAIR}
            self.number = number

        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            calls.append((self.number, signature, outputs))
            return {}

    loaded = Replica(0)
    loaded.replicas = [loaded, Replica(1)]  # type: ignore[attr-defined]  # as of a model on two devices
    function = RequestPlacement("m", 3, loaded, SIZES).place(ask(rows_of(1.0), "w"))[1]
    for replica in (0, 1, 2):
        function.on(replica)({})
    assert calls == [(0, "s", ("w",)), (1, "s", ("w",)), (0, "s", ("w",))]


@pytest.mark.parametrize("batching", [True, False])
def test_requests_of_another_generation_wait_in_another_lane(batching: bool) -> None:
    keys = {
        placement_of(PAIR, batching=batching, generation=generation).place(ask(rows_of(1.0)))[0]
        for generation in (0, 1, 1)
    }
    assert len(keys) == 2
