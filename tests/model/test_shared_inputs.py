"""Inputs that are no rows, and inputs whose first dimensions need not be equal. The oracle is the direct call."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import STRING, Array, InferenceRequest, ModelSignature, TensorSpec
from app.core.optional_inputs import with_declared_masks
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, run_in_fake_time

SIZES = BatchSizes.powers_of_two(8)
FLOAT = np.dtype(np.float32)
PROVEN = {"y": OutputRows("proven")}


class Scaled(FakeLoadedModel):
    """y = x * factor + len(name), row by row; the factor and the name are no rows."""

    def __init__(self, graph_rows: GraphRows | None) -> None:
        super().__init__()
        inputs = {
            "x": TensorSpec("x", FLOAT, (None, 2)),
            "factor": TensorSpec("factor", FLOAT, ()),
            "name": TensorSpec("name", STRING, (None,)),
        }
        outputs = {"y": TensorSpec("y", FLOAT, (None, 2))}
        self.signatures = {"s": ModelSignature("s", inputs, outputs, graph_rows=graph_rows)}
        self.calls: list[int] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        assert (signature, outputs, inputs.keys()) == ("s", (), {"x", "factor", "name"})
        assert inputs["factor"].shape == ()
        self.calls.append(len(inputs["x"]))
        return {"y": inputs["x"] * inputs["factor"] + np.float32(len(inputs["name"][0]))}


SHARED = GraphRows(PROVEN, frozenset({"x"}), frozenset({"factor", "name"}))


def scaled(value: float, rows: int, factor: float, name: bytes = b"a") -> InferenceRequest:
    inputs = {
        "x": np.full((rows, 2), value, np.float32),
        "factor": np.array(factor, np.float32),
        "name": np.array([name], object),
    }
    return InferenceRequest(inputs, "s")


def answers(loaded: FakeLoadedModel, requests: list[InferenceRequest]) -> list[Array]:
    """Of requests that arrive together while the device is busy with another one."""
    placement = RequestPlacement("m", 3, loaded, SIZES)

    async def main() -> list[Array]:
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(100), clock=asyncio.get_running_loop().time)
        model = Model(placement, batcher)
        responses = await asyncio.gather(*[model.infer(each) for each in requests])
        return [each.outputs["y"] for each in responses]

    return run_in_fake_time(main())


def test_requests_with_equal_shared_inputs_share_calls_that_have_these_once() -> None:
    loaded = Scaled(SHARED)
    cases = [(1.0, 1, 2.0, b"a"), *[(float(n), n % 3 + 1, 2.0 + n % 2, b"a" * (n % 2 + 1)) for n in range(12)]]
    found = answers(loaded, [scaled(*case) for case in cases])
    for (value, rows, factor, name), answer in zip(cases, found, strict=True):
        np.testing.assert_array_equal(answer, np.full((rows, 2), value * factor + len(name), np.float32))
    assert len(loaded.calls) < len(cases)
    assert max(loaded.calls) == SIZES.largest


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (scaled(5.0, 3, 2.0), True),
        (scaled(5.0, 1, 2.5), False),
        (scaled(5.0, 1, -0.0), False),
        (scaled(5.0, 1, 2.0, b"b"), False),
    ],
)
def test_requests_share_a_lane_only_with_those_of_equal_shared_inputs(other: InferenceRequest, same: bool) -> None:
    placement = RequestPlacement("m", 3, Scaled(SHARED), SIZES)
    first, second = placement.place(scaled(1.0, 1, 2.0)), placement.place(other)
    assert (first[0] == second[0]) is same
    assert (first[1] is second[1]) is same
    assert second[2] == len(other.inputs["x"])


def test_zeros_of_both_signs_are_not_equal_shared_inputs() -> None:
    placement = RequestPlacement("m", 3, Scaled(SHARED), SIZES)
    assert placement.place(scaled(1.0, 1, 0.0))[0] != placement.place(scaled(1.0, 1, -0.0))[0]


@pytest.mark.parametrize(("graph_rows", "rows"), [(SHARED, SIZES.largest), (None, 1)])
def test_the_most_rows_of_a_call_count_those_beside_shared_inputs(graph_rows: GraphRows | None, rows: int) -> None:
    assert RequestPlacement("m", 3, Scaled(graph_rows), SIZES).call_rows("s") == rows


def test_defaults_of_rows_hold_for_each_row_and_defaults_of_shared_inputs_as_they_are() -> None:
    loaded = Scaled(SHARED)
    defaults = {"factor": np.array(3.0, np.float32), "name": np.array([b"abc"], object)}
    loaded.signatures = {"s": replace(loaded.signatures["s"], defaults=defaults)}
    for rows in (1, 3):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        (answer,) = answers(loaded, [InferenceRequest({"x": x}, "s")])
        np.testing.assert_array_equal(answer, 3 * x + 3)
    one = replace(loaded.signatures["s"], defaults={"x": np.array([[1.0, 2.0]], np.float32)})
    loaded.signatures = {"s": replace(one, inputs={**one.inputs, "z": TensorSpec("z", FLOAT, (None, 1))})}
    placed = InferenceRequest(scaled(0.0, 3, 2.0).inputs | {"z": np.zeros((3, 1), np.float32)}, "s")
    del placed.inputs["x"]
    assert RequestPlacement("m", 3, loaded, SIZES).place(placed)[2] == 3
    assert placed.inputs["x"].shape == (3, 2)


def test_masks_beside_shared_inputs_are_filled_in() -> None:
    inputs = {
        "tokens": TensorSpec("tokens", np.dtype(np.int32), (None, None)),
        "mask": TensorSpec("mask", np.dtype(np.int32), (None, None)),
        "factor": TensorSpec("factor", FLOAT, ()),
    }
    rows = GraphRows(PROVEN, frozenset({"tokens", "mask"}), frozenset({"factor"}))
    signature = ModelSignature("s", inputs, {"y": TensorSpec("y", FLOAT, (None,))}, graph_rows=rows)
    (known,) = with_declared_masks({"s": signature}, {"mask": "tokens"}).values()
    assert known.masks == {"mask": "tokens"}


def test_large_shared_inputs_are_not_compared_and_the_request_runs_alone() -> None:
    placement = RequestPlacement("m", 3, Scaled(SHARED), SIZES)
    request = scaled(1.0, 3, 2.0, b"a" * 2000)
    _, function, rows = placement.place(request)
    assert (function.batchable, rows) == (False, 1)
    assert request.inputs.keys() == {"x", "factor", "name"}


def test_the_memory_of_a_message_is_not_kept_with_the_shared_inputs() -> None:
    message = np.zeros(100, np.float32)
    request = scaled(1.0, 1, 0.0)
    request.inputs["factor"] = message[3:4].reshape(())
    _, function, _ = RequestPlacement("m", 3, Scaled(SHARED), SIZES).place(request)
    message[3] = 7.0
    np.testing.assert_array_equal(function.run({"x": np.ones((1, 2), np.float32)})["y"], [[1.0, 1.0]])


def test_functions_of_shared_inputs_are_bounded() -> None:
    placement = RequestPlacement("m", 3, Scaled(SHARED), SIZES)
    for number in range(1000):
        placement.place(scaled(1.0, 1, float(number)))
    assert len(placement.functions) <= 256


@pytest.mark.parametrize(
    "graph_rows",
    [
        None,
        GraphRows({"y": OutputRows("unknown", "Foo")}, frozenset({"x"}), frozenset({"factor", "name"})),
        GraphRows({"y": OutputRows("mixes", "Sum")}, frozenset({"x"}), frozenset({"factor", "name"})),
        GraphRows(PROVEN, frozenset({"x", "name"}), frozenset()),
    ],
)
def test_requests_run_alone_unless_the_graph_proves_their_rows_beside_the_shared_inputs(
    graph_rows: GraphRows | None,
) -> None:
    loaded = Scaled(graph_rows)
    assert not loaded.signatures["s"].shares_calls
    found = answers(loaded, [scaled(float(n), n + 1, 2.0) for n in range(5)])
    assert loaded.calls == [1, 2, 3, 4, 5]
    for n, answer in enumerate(found):
        np.testing.assert_array_equal(answer, np.full((n + 1, 2), n * 2.0 + 1, np.float32))


def test_what_is_found_to_differ_runs_alone_with_its_shared_inputs() -> None:
    loaded = Scaled(SHARED)
    placement = RequestPlacement("m", 3, loaded, SIZES)
    placement.place(scaled(1.0, 1, 2.0))
    placement.stop("s", "sharing")
    request = scaled(1.0, 3, 2.0)
    _, function, rows = placement.place(request)
    assert (function.batchable, rows) == (False, 1)
    np.testing.assert_array_equal(function.run(request.inputs)["y"], np.full((3, 2), 3.0, np.float32))


class Graph(FakeLoadedModel):
    """Adds to each node the sum of all edges: nodes and edges are not equally many."""

    def __init__(self, graph_rows: GraphRows | None, alone: str = "") -> None:
        super().__init__()
        rows = {name: TensorSpec(name, FLOAT, (None, 2)) for name in ("nodes", "edges", "y")}
        inputs = {name: rows[name] for name in ("nodes", "edges")}
        reasons = {"y": alone} if alone else {}
        self.signatures = {"s": ModelSignature("s", inputs, {"y": rows["y"]}, graph_rows=graph_rows, alone=reasons)}

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return {"y": inputs["nodes"] + inputs["edges"].sum(axis=0)}


MIXES = GraphRows({"y": OutputRows("mixes", "Sum")}, frozenset({"nodes", "edges"}), frozenset(), unequal=True)


@pytest.mark.parametrize("loaded", [Graph(MIXES), Graph(MIXES, "the graph mixes rows"), Graph(None, "not proven")])
@pytest.mark.parametrize("strict", [True, False])
def test_a_request_that_runs_alone_may_have_inputs_of_any_numbers_of_rows(loaded: Graph, strict: bool) -> None:
    placement = RequestPlacement("m", 3, loaded, SIZES, strict_shapes=strict)
    for nodes, edges in [(3, 3), (3, 2), (1, 4), (3, 0), (0, 2), (3, 3)]:
        inputs = {"nodes": np.ones((nodes, 2), np.float32), "edges": np.ones((edges, 2), np.float32)}
        _, function, rows = placement.place(InferenceRequest(inputs, "s"))
        assert (function.batchable, rows) == (False, 1)
        np.testing.assert_array_equal(function.run(inputs)["y"], np.full((nodes, 2), 1.0 + edges))


def test_requests_whose_rows_may_differ_share_calls_if_they_do_not() -> None:
    """Two towers: each output is proven, and follows the rows of its own input."""
    loaded = Graph(replace(MIXES, outputs=PROVEN))
    placement = RequestPlacement("m", 3, loaded, SIZES)
    same = {"nodes": np.ones((3, 2), np.float32), "edges": np.ones((3, 2), np.float32)}
    for _ in range(2):
        assert placement.place(InferenceRequest(same, "s"))[2] == 3
        _, function, rows = placement.place(InferenceRequest({**same, "edges": np.ones((2, 2), np.float32)}, "s"))
        assert (function.batchable, rows) == (False, 1)


def test_rows_that_by_the_graph_must_be_equal_are_an_error_that_names_them() -> None:
    loaded = Graph(GraphRows(PROVEN, frozenset({"nodes", "edges"})))
    inputs = {"nodes": np.ones((3, 2), np.float32), "edges": np.ones((2, 2), np.float32)}
    with pytest.raises(InvalidRequest, match="equally many rows; 'nodes' has 3, 'edges' has 2"):
        RequestPlacement("m", 3, loaded, SIZES).place(InferenceRequest(inputs, "s"))
