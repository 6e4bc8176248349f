import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.request import LaneKey
from app.batching.shapes.padding import ShapePadding
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest, ModelNotReady, RequestTooLarge
from app.core.inference import Array, InferenceRequest, ModelSignature, SparseParts, TensorSpec
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, rows_of, run_in_fake_time

SIZES = BatchSizes.powers_of_two(8)
FLOAT = np.dtype(np.float32)


def pair(x_rows: int, z_rows: int) -> InferenceRequest:
    return InferenceRequest({"x": rows_of(1.0, x_rows)["x"], "z": rows_of(2.0, z_rows)["x"]}, "pair")


def test_a_form_seen_before_has_its_lane_and_its_own_rows() -> None:
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES, generation=0)
    first, second = placement.place(pair(2, 2)), placement.place(pair(5, 5))
    assert first[0] == second[0] == LaneKey("m", 3, "pair", (), ((2,), (2,)))
    assert first[1] is second[1]
    assert (first[2], second[2]) == (2, 5)


@pytest.mark.parametrize(("x_rows", "z_rows"), [(2, 3), (3, 2), (0, 1)])
def test_unequal_rows_are_an_error_also_for_a_form_seen_before(x_rows: int, z_rows: int) -> None:
    text = f"Inputs of signature 'pair' must have equally many rows; 'x' has {x_rows}, 'z' has {z_rows}"
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES)
    for _ in range(2):
        with pytest.raises(InvalidRequest) as caught:
            placement.place(pair(x_rows, z_rows))
        assert str(caught.value) == text + " (with strict_shapes off the model judges such a request)"
        placement.place(pair(2, 2))


def test_a_number_is_not_taken_for_a_row_of_the_form_seen_before() -> None:
    loaded = FakeLoadedModel()
    spec = TensorSpec("x", FLOAT, (None,))
    loaded.signatures = {"s": ModelSignature("s", {"x": spec}, {"y": spec})}
    placement = RequestPlacement("m", 3, loaded, SIZES)
    assert placement.place(InferenceRequest({"x": np.zeros(2, np.float32)}, "s"))[2] == 2
    with pytest.raises(InvalidRequest, match=r"Input 'x' has shape \[\]; expected \[\?\]"):
        placement.place(InferenceRequest({"x": np.array(1, np.float32)}, "s"))


@pytest.mark.parametrize(("loops", "reads_files"), [(False, False), (True, False), (False, True)])
def test_no_call_of_a_graph_that_loops_or_reads_files_tells_how_long_the_next_one_takes(
    loops: bool, reads_files: bool
) -> None:
    loaded = FakeLoadedModel()
    spec = TensorSpec("x", FLOAT, (None,))
    loaded.signatures = {"s": ModelSignature("s", {"x": spec}, {"y": spec}, loops=loops, reads_files=reads_files)}
    placement = RequestPlacement("m", 3, loaded, SIZES)
    assert placement.place(InferenceRequest({"x": np.zeros(2, np.float32)}, "s"))[1].steady is not (
        loops or reads_files
    )


def test_unequal_rows_of_a_form_seen_before_run_alone_if_shapes_are_not_strict() -> None:
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES, strict_shapes=False)
    placement.place(pair(2, 2))
    key, function, rows = placement.place(pair(2, 3))
    assert (key.shape, function.batchable, rows) == ((), False, 1)


@pytest.mark.parametrize("shape", [(), (2,), (2, 2, 1)])
def test_another_rank_is_rejected_where_it_would_end_the_process(shape: tuple[int, ...]) -> None:
    """TensorFlow ends the process where an operation that takes images gets something else."""
    loaded = FakeLoadedModel()
    loaded.signatures = {name: replace(each, one_rank=True) for name, each in loaded.signatures.items()}
    placement = RequestPlacement("m", 3, loaded, SIZES, strict_shapes=False)
    with pytest.raises(InvalidRequest, match=r"expected \[.*\], or other sizes of this rank"):
        placement.place(InferenceRequest({"x": np.zeros(shape, np.float32)}))


def test_errors_are_reported_in_the_order_names_dtypes_shapes_outputs_rows() -> None:
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES)
    x = np.zeros((1, 2), np.float32)
    texts = []
    for inputs, outputs in (
        ({"x": np.zeros((2, 3))}, ("none",)),
        ({"x": np.zeros((2, 3)), "z": x}, ("none",)),
        ({"x": np.zeros((2, 3), np.float32), "z": x}, ("none",)),
        ({"x": np.zeros((2, 2), np.float32), "z": x}, ("none",)),
        ({"x": np.zeros((2, 2), np.float32), "z": x}, ("y",)),
    ):
        with pytest.raises(InvalidRequest) as caught:
            placement.place(InferenceRequest(inputs, "pair", outputs))
        texts.append(str(caught.value))
    expected = ["missing 'z'", "has dtype float64", "has shape [2,3]", "has no output 'none'", "equally many rows"]
    assert all(part in text for part, text in zip(expected, texts, strict=True))


def test_a_request_without_its_mask_goes_where_the_same_request_with_it_goes() -> None:
    ids = TensorSpec("ids", FLOAT, (None, None))
    mask = TensorSpec("mask", FLOAT, (None, None))
    loaded = FakeLoadedModel()
    loaded.signatures = {"s": ModelSignature("s", {"ids": ids, "mask": mask}, {"y": ids}, masks={"mask": "ids"})}
    placement = RequestPlacement("m", 3, loaded, SIZES)
    array = np.zeros((2, 5), np.float32)
    short = InferenceRequest({"ids": array}, "s")
    whole = InferenceRequest({"ids": array, "mask": np.ones((2, 5), np.float32)}, "s")
    assert placement.place(short) == placement.place(whole) == placement.place(InferenceRequest({"ids": array}, "s"))
    assert short.inputs["mask"].tolist() == whole.inputs["mask"].tolist()


def test_a_function_with_requests_under_way_is_not_dropped_and_no_form_leads_to_a_dropped_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.placement._MAX_FUNCTIONS", 1)
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES)
    busy = placement.place(InferenceRequest(rows_of(1.0)))[1]
    busy.requests_under_way += 1
    idle = placement.place(pair(1, 1))[1]
    assert set(map(id, placement.functions.values())) == {id(busy), id(idle)}

    scalar = InferenceRequest({"x": np.array(1.0, np.float32)}, "total")
    placement.place(scalar)
    assert idle not in placement.functions.values()
    assert placement.place(InferenceRequest(rows_of(2.0)))[1] is busy
    assert placement.place(pair(1, 1))[1] is not idle

    busy.leave()
    placement.place(scalar)
    assert busy not in placement.functions.values()
    assert placement.place(InferenceRequest(rows_of(2.0)))[1] is not busy


def test_a_closed_version_accepts_no_request_and_says_so() -> None:
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES)
    placement.place(pair(1, 1))
    placement.closed = True
    with pytest.raises(ModelNotReady, match="Version 3 of model m is being unloaded"):
        placement.place(pair(1, 1))


def test_requests_for_some_outputs_share_a_call_with_neighbouring_shapes_and_get_those_outputs() -> None:
    wanted = []

    def run(signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        wanted.append((inputs["x"].shape, outputs))
        both = {"y": inputs["x"] * 2, "w": inputs["x"].sum(axis=1)}
        return {name: both[name] for name in outputs or both}

    async def main() -> None:
        spec = TensorSpec("x", FLOAT, (None, None))
        loaded = FakeLoadedModel()
        loaded.signatures = {
            "free": ModelSignature("free", {"x": spec}, {"y": spec, "w": TensorSpec("w", FLOAT, (None,))})
        }
        loaded.run = run  # type: ignore[method-assign]  # of a fake
        # A call costs as much as many cells: neighbouring buckets are merged.
        padding = ShapePadding({"x": ("n",)}, {"y": ("n",), "w": ()}, {"x": 0}, call_cells=1e6)
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(100), clock=asyncio.get_running_loop().time)
        model = Model(RequestPlacement("m", 3, loaded, SIZES, paddings={"free": padding}), batcher)
        rows = [np.full((1, width), width, np.float32) for width in (5, 20, 40)]
        answers = await asyncio.gather(*[model.infer(InferenceRequest({"x": x}, "free", ("y",))) for x in rows])

        assert wanted == [((4, 40), ("y",))]
        assert [answer.timing.rows for answer in answers] == [3, 3, 3]
        for x, answer in zip(rows, answers, strict=True):
            assert answer.outputs.keys() == {"y"}
            assert np.array_equal(answer.outputs["y"], x * 2)
        assert all(one.outputs["y"].shape != other.outputs["y"].shape for one, other in pairwise(answers))

    run_in_fake_time(main())


@pytest.mark.parametrize("outputs", [("y", "w"), ("w", "y"), ("w", "y", "w")])
def test_who_names_every_output_shares_the_lane_of_who_names_none(outputs: tuple[str, ...]) -> None:
    placement = RequestPlacement("m", 3, FakeLoadedModel(), SIZES)
    first, named = pair(1, 1), pair(1, 1)
    named.outputs = outputs
    assert placement.place(named) == placement.place(first) == placement.place(named)
    assert len(placement.functions) == 1


def test_named_outputs_share_a_lane_in_any_order() -> None:
    loaded = FakeLoadedModel()
    spec = TensorSpec("x", FLOAT, (None, 2))
    loaded.signatures = {"s": ModelSignature("s", {"x": spec}, {"a": spec, "b": spec, "c": spec})}
    placement = RequestPlacement("m", 3, loaded, SIZES, generation=0)
    lanes = {placement.place(InferenceRequest(rows_of(1.0), "s", each))[0] for each in (("c", "a"), ("a", "c"))}
    assert lanes == {LaneKey("m", 3, "s", ("a", "c"), ((2,),))}


def test_a_version_that_is_loaded_anew_shares_no_lane_with_its_earlier_files() -> None:
    lanes = {RequestPlacement("m", 3, FakeLoadedModel(), SIZES).place(pair(2, 2))[0] for _ in range(2)}
    assert len(lanes) == 2


class PlainFake(FakeLoadedModel):
    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[str] = []

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return self.run(signature, inputs, outputs)

    def stop_variants(self, signature: str) -> None:
        self.stopped.append(signature)


def test_what_a_shadow_check_found_guilty_is_not_used_any_more() -> None:
    loaded = PlainFake()
    placement = RequestPlacement("m", 3, loaded, SIZES)
    request = InferenceRequest(rows_of(1.0))
    _, function, _ = placement.place(request)
    assert function.plain is not None
    function.plain.stop("variant")
    assert loaded.stopped == ["serving_default"]
    function.plain.stop("sharing")
    assert not function.batchable
    assert placement.signatures["serving_default"].why_alone()
    assert not placement.place(request)[1].batchable
    assert placement.place(pair(2, 2))[1].batchable, "another signature"


def test_what_writes_state_or_draws_is_not_checked() -> None:
    for facts in ({"writes": ("AssignVariableOp",)}, {"draws": ("RandomUniform",)}):
        loaded = PlainFake()
        signature = replace(loaded.signatures["serving_default"], **facts)
        loaded.signatures = {**loaded.signatures, "serving_default": signature}
        placement = RequestPlacement("m", 3, loaded, SIZES)
        assert placement.place(InferenceRequest(rows_of(1.0)))[1].plain is None
        assert (placement.place(pair(2, 2))[1].plain is None) == ("writes" in facts), "it may read what is written"


def test_what_a_setting_forces_is_not_checked() -> None:
    placement = RequestPlacement("m", 3, PlainFake(), SIZES, unchecked={"serving_default"})
    assert placement.place(InferenceRequest(rows_of(1.0)))[1].plain is None
    assert placement.place(pair(2, 2))[1].plain is not None


def test_requests_that_wait_are_padded_no_more_when_padding_was_found_guilty() -> None:
    loaded, free = PlainFake(), TensorSpec("x", np.dtype(np.float32), (None, None))
    loaded.signatures = {**loaded.signatures, "free": ModelSignature("free", {"x": free}, {"y": free})}
    padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0})
    placement = RequestPlacement("m", 3, loaded, SIZES, paddings={"free": padding})
    inputs = {"x": np.ones((1, 3), np.float32)}
    request = InferenceRequest(inputs, "free")
    padded, plain = placement.place(request)[1], placement.place(InferenceRequest(rows_of(1.0)))[1]
    assert padded.padding is padding
    placement.stop("free", "padding")
    assert (padded.batchable, plain.batchable) == (False, True)
    _, later, _ = placement.place(InferenceRequest(inputs, "free"))
    assert (later.padding, later.batchable) == (None, True)


def test_what_was_found_guilty_stays_so_when_the_model_gets_faster() -> None:
    async def main() -> None:
        loaded = PlainFake()
        first = RequestPlacement("m", 3, loaded, SIZES)
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(64), clock=asyncio.get_running_loop().time)
        model = Model(first, batcher)
        first.stop("serving_default", "sharing")
        first.stop("pair", "variant")
        assert model.signatures["serving_default"].why_alone()
        model.adopt(RequestPlacement("m", 3, loaded, SIZES, generation=1))
        assert model.signatures["serving_default"].why_alone()
        assert loaded.stopped == ["pair", "pair"]

    run_in_fake_time(main())


def test_what_is_found_guilty_after_the_model_got_faster_is_not_used_any_more_either() -> None:
    async def main() -> None:
        loaded, request = PlainFake(), InferenceRequest(rows_of(1.0))
        first, second, third = [RequestPlacement("m", 3, loaded, SIZES) for _ in range(3)]
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(64), clock=asyncio.get_running_loop().time)
        model = Model(first, batcher)
        checked = first.place(request)[1].plain
        assert checked is not None
        model.adopt(second)
        model.adopt(third)
        checked.stop("sharing")
        assert not third.place(request)[1].batchable
        assert model.signatures["serving_default"].why_alone()

    run_in_fake_time(main())


@pytest.mark.parametrize(
    ("shape", "sent", "elements"),
    [
        ((None, None), (2, 11), 11),
        ((None, None, 3), (1, 4, 3), 12),
        (None, (5, 3, 4), 60),
        ((), (), 0),
        ((None, 11), (2, 11), 0),
        ((None, None), (99, 10), 0),
        ((2, None), (2, 6), 12),
        ((11,), (11,), 0),
        ((None, None, None), (2, 11, 0), 11),
    ],
)
def test_rows_whose_shape_is_open_have_a_largest_size(
    shape: tuple[int | None, ...] | None, sent: tuple[int, ...], elements: int
) -> None:
    """What the signature fixes is never too large, and rows are not counted."""
    numbers = np.dtype(np.float32)
    signature = ModelSignature("f", {"x": TensorSpec("x", numbers, shape)}, {"y": TensorSpec("y", numbers, (None,))})
    loaded = FakeLoadedModel()
    loaded.signatures = {"f": signature}
    placement = RequestPlacement("m", 3, loaded, SIZES, max_row_elements=10)
    request = InferenceRequest({"x": np.zeros(sent, np.float32)}, "f")
    if not elements:
        placement.place(request)
        return
    for _ in range(2):
        with pytest.raises(RequestTooLarge, match=f"{elements} elements in a row; max_row_elements is 10"):
            placement.place(request)
    RequestPlacement("m", 3, loaded, SIZES).place(request)


def test_rows_without_elements_are_few_since_they_cost_their_sender_nothing() -> None:
    loaded = FakeLoadedModel()
    x, weight = TensorSpec("x", FLOAT, (None, None)), TensorSpec("weight", FLOAT, (None,))
    loaded.signatures = {
        "one": ModelSignature("one", {"x": x}, {"y": x}),
        "both": ModelSignature("both", {"x": x, "weight": weight}, {"y": x}),
    }
    placement = RequestPlacement("m", 3, loaded, SIZES)
    empty = {"x": np.empty((8192, 0), np.float32)}
    for _ in range(2):
        assert placement.place(InferenceRequest(empty, "one"))[2] == 8192
        for rows in (8193, 2**60):
            with pytest.raises(InvalidRequest, match=rf"shape \[{rows},0\], rows without elements; expected 8192"):
                placement.place(InferenceRequest({"x": np.empty((rows, 0), np.float32)}, "one"))
    weighed = {"x": np.empty((9000, 0), np.float32), "weight": np.ones(9000, np.float32)}
    assert placement.place(InferenceRequest(weighed, "both"))[2] == 9000


@pytest.mark.parametrize("shape", [(9000, 1), (9000, 3), (10**7, 1)])
def test_rows_of_one_repeated_value_are_few_for_the_same_reason(shape: tuple[int, int]) -> None:
    """A TensorProto of 32 bytes with ten million rows kept the device busy for 29 s."""
    loaded = FakeLoadedModel()
    x, weight = TensorSpec("x", FLOAT, (None, None)), TensorSpec("weight", FLOAT, (None,))
    loaded.signatures = {
        "one": ModelSignature("one", {"x": x}, {"y": x}),
        "both": ModelSignature("both", {"x": x, "weight": weight}, {"y": x}),
    }
    placement = RequestPlacement("m", 3, loaded, SIZES)
    repeated = np.broadcast_to(np.float32(1.0), shape)
    few = repeated[:8192]
    for sent in (np.ones((9000, shape[1]), np.float32), few, few):  # the form is known from the first one on
        assert placement.place(InferenceRequest({"x": sent}, "one"))[2] == len(sent)
        with pytest.raises(InvalidRequest, match=r"rows of one repeated value; expected 8192 of them at most"):
            placement.place(InferenceRequest({"x": repeated}, "one"))
    weighed = {"x": repeated, "weight": np.ones(shape[0], np.float32)}
    assert placement.place(InferenceRequest(weighed, "both"))[2] == shape[0]


@pytest.mark.parametrize("strict_shapes", [True, False])
def test_a_sparse_tensor_is_checked_at_each_request(strict_shapes: bool) -> None:
    int64 = np.dtype(np.int64)
    inputs = {name: TensorSpec(name, int64, shape) for name, shape in (("x", (None, 2)), ("v", (None,)), ("s", (2,)))}
    loaded = FakeLoadedModel()
    output = {"y": TensorSpec("y", FLOAT, (None,))}
    loaded.signatures = {"f": ModelSignature("f", inputs, output, sparse=(SparseParts("x", "v", "s"),))}
    placement = RequestPlacement("m", 3, loaded, SIZES, strict_shapes=strict_shapes)

    def request(rows: int) -> InferenceRequest:
        arrays = {"x": np.zeros((1, 2), np.int64), "v": np.ones(1, np.int64), "s": np.array([rows, 3], np.int64)}
        return InferenceRequest(arrays, "f")

    for _ in range(2):
        placement.place(request(2))
        with pytest.raises(InvalidRequest, match="Input 's' has 8589934592 rows"):
            placement.place(request(1 << 33))


def sparse_placement(alone: dict[str, str] | None = None) -> RequestPlacement:
    int64 = np.dtype(np.int64)
    inputs = {
        "x": TensorSpec("x", int64, (None, 2)),
        "v": TensorSpec("v", FLOAT, (None,)),
        "s": TensorSpec("s", int64, (2,)),
    }
    loaded, output = FakeLoadedModel(), {"y": TensorSpec("y", FLOAT, (None,))}
    loaded.signatures = {
        "f": ModelSignature("f", inputs, output, sparse=(SparseParts("x", "v", "s"),), alone=alone or {})
    }
    return RequestPlacement("m", 3, loaded, SIZES)


def sparse_request(places: list[tuple[int, int]], *shape: int) -> InferenceRequest:
    indices = np.array(places, np.int64).reshape(-1, 2)
    return InferenceRequest({"x": indices, "v": np.ones(len(places), np.float32), "s": np.array(shape)}, "f")


def test_requests_with_sparse_tensors_of_equal_sizes_share_a_lane() -> None:
    placement = sparse_placement()
    key, function, rows = placement.place(sparse_request([(0, 1), (2, 0)], 3, 4))
    assert (rows, function.batchable) == (3, True)
    assert placement.place(sparse_request([], 1, 4)) == (key, function, 1)
    other, same_function, rows = placement.place(sparse_request([], 2, 5))
    assert (same_function, rows) == (function, 2)
    assert other != key
    assert other.call != key.call


@pytest.mark.parametrize("places", [[(1, 0), (0, 0)], [(0, 0), (0, 0)]])
def test_a_sparse_tensor_whose_entries_are_not_in_order_runs_alone(places: list[tuple[int, int]]) -> None:
    _, function, rows = sparse_placement().place(sparse_request(places, 3, 4))
    assert (rows, function.batchable) == (1, False)


def test_a_sparse_signature_that_is_not_proven_runs_alone() -> None:
    _, function, _ = sparse_placement(alone={"y": "it is not proven"}).place(sparse_request([], 3, 4))
    assert not function.batchable


def test_requests_with_and_without_an_input_that_has_a_default_share_a_lane() -> None:
    loaded = FakeLoadedModel()
    x, scale = (TensorSpec(name, FLOAT, (None, 1)) for name in ("x", "scale"))
    signature = ModelSignature("s", {"x": x, "scale": scale}, {"y": x}, defaults={"scale": np.array([[3]], np.float32)})
    loaded.signatures = {"s": signature}
    placement = RequestPlacement("m", 3, loaded, SIZES)
    ones = np.ones((2, 1), np.float32)
    sent, left_out = InferenceRequest({"x": ones, "scale": ones}, "s"), InferenceRequest({"x": ones}, "s")
    assert placement.place(sent) == placement.place(left_out)
    assert left_out.inputs["scale"].tolist() == [[3], [3]]


def test_a_default_of_several_rows_fits_a_request_of_as_many() -> None:
    loaded = FakeLoadedModel()
    spec = TensorSpec("x", FLOAT, (None,))
    defaults = {"more": np.array([1, 2], np.float32)}
    loaded.signatures = {"s": ModelSignature("s", {"x": spec, "more": spec}, {"y": spec}, defaults=defaults)}
    placement = RequestPlacement("m", 3, loaded, SIZES)
    assert placement.place(InferenceRequest({"x": np.ones(2, np.float32)}, "s"))[2] == 2
    with pytest.raises(InvalidRequest, match="equally many rows; 'x' has 3, 'more' has 2"):
        placement.place(InferenceRequest({"x": np.ones(3, np.float32)}, "s"))
    lenient = RequestPlacement("m", 3, loaded, SIZES, strict_shapes=False)
    assert not lenient.place(InferenceRequest({"x": np.ones(3, np.float32)}, "s"))[1].batchable, "the graph judges"
