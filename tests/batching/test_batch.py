import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batch import (
    BatchInFlight,
    Execution,
    RowCountMismatch,
    assemble,
    padding_of,
    run_together,
    split,
)
from app.batching.batch import execute as execute_timed
from app.batching.function import BatchFunction, elements_of
from app.batching.request import LaneKey, PendingRequest
from app.batching.shapes.buckets import ShapeBuckets
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.ragged import RaggedRows
from app.batching.waiting.lane import Lane
from app.core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    OutOfMemory,
    Overloaded,
    ServingError,
)
from app.core.inference import Array
from app.core.reply import Outcome
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function, pending, rows_of, run_batch


def execute(function: BatchFunction, requests: Sequence[PendingRequest]) -> list[Outcome]:
    return run_batch(function, requests)[0]


def outcomes(function: FakeFunction, *values: float, largest: int = 8) -> list[object]:
    found = execute(batch_function(function, largest), [pending(value) for value in values])
    return [each["y"][:, 0].tolist() if isinstance(each, dict) else type(each) for each in found]


def test_each_request_gets_its_own_rows() -> None:
    function = FakeFunction()
    requests = [pending(1.0, 2), pending(2.0, 1), pending(3.0, 0), pending(4.0, 3)]
    found = execute(batch_function(function, 8), requests)
    assert [each["y"][:, 0].tolist() for each in found if isinstance(each, dict)] == [[2, 2], [4], [], [8, 8, 8]]
    assert function.calls == [[1, 1, 2, 4, 4, 4, 1, 1]]  # padded to 8 by repeating a row


def test_a_lone_request_of_an_allowed_size_is_not_copied() -> None:
    request = pending(1.0, 4)
    assert assemble([request], 4, 4)["x"] is request.inputs["x"]


def test_a_request_without_rows_is_run_without_rows() -> None:
    function = FakeFunction()
    (found,) = execute(batch_function(function), [pending(1.0, 0)])
    assert isinstance(found, dict)
    assert found["y"].shape == (0, 2)
    assert function.calls == [[]]


class Convolution:
    """Doubles x, but rejects a call without rows. `shapes` are those of all calls."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.shapes.append(inputs["x"].shape)
        if not len(inputs["x"]):
            raise InvalidRequest("no rows")
        return {"y": inputs["x"] * 2}


def test_a_model_that_rejects_no_rows_gets_a_blank_row_that_is_cut_off() -> None:
    convolution = Convolution()
    found = execute(batch_function(convolution), [pending(1.0, 0), pending(1.0, 0)])
    assert [each["y"].shape for each in found if isinstance(each, dict)] == [(0, 2), (0, 2)]
    assert convolution.shapes == [(0, 2), (1, 2)]


def test_blank_rows_are_zeros_and_empty_strings() -> None:
    blank = []

    def picky(inputs: Mapping[str, Array]) -> dict[str, Array]:
        if not len(inputs["x"]):
            raise InvalidRequest("no rows")
        blank.append({name: array.tolist() for name, array in inputs.items()})
        return {"y": inputs["x"]}

    request = pending(1.0, 0)
    request.inputs = {"x": np.zeros((0, 2), np.int32), "s": np.zeros((0, 1), object)}
    execute(batch_function(picky), [request])
    assert blank == [{"x": [[0, 0]], "s": [[b""]]}]


def test_of_a_blank_row_no_ragged_values_are_returned() -> None:
    def picky(inputs: Mapping[str, Array]) -> dict[str, Array]:
        if not len(inputs["x"]):
            raise InvalidRequest("no rows")
        return {"y": np.array([5.0, 6.0]), "ends": np.array([0, 2]), "z": inputs["x"]}

    (found,) = execute(batch_function(picky, ragged_outputs=RaggedRows({"y": ["ends"]})), [pending(1.0, 0)])
    assert isinstance(found, dict)
    assert {name: array.tolist() for name, array in found.items()} == {"y": [], "ends": [0], "z": []}


def test_a_model_that_rejects_a_blank_row_too_says_why_it_rejects_no_rows() -> None:
    def picky(inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise InvalidRequest(f"{len(inputs['x'])} rows rejected")

    (found,) = execute(batch_function(picky), [pending(1.0, 0)])
    assert str(found) == "0 rows rejected"


def test_one_bad_request_fails_alone() -> None:
    assert outcomes(FakeFunction(), 1, 2, -3, 4, 5) == [[2], [4], InvalidRequest, [8], [10]]


def test_a_request_alone_of_more_rows_than_the_model_takes_is_answered_by_parts_of_it() -> None:
    def picky(inputs: Mapping[str, Array]) -> dict[str, Array]:
        if len(inputs["x"]) > 3:
            raise InvalidRequest("at most 3 rows")
        return {"y": inputs["x"] * 2}

    request = pending(5.0, 8)
    execution = execute_timed(batch_function(picky, 8), [request], lambda: 0.0)
    assert (execution.rejection, execution.refusal and execution.refusal.found) == (None, 3)
    (answer,) = execution.outcomes
    assert isinstance(answer, dict)
    np.testing.assert_array_equal(answer["y"], request.inputs["x"] * 2)


def test_all_bad_requests_fail_each_with_its_own_error() -> None:
    found = execute(batch_function(FakeFunction()), [pending(-1.0), pending(-2.0)])
    assert [str(each) for each in found] == ["x must not be negative, got -1", "x must not be negative, got -2"]


def test_out_of_memory_halves_the_batch() -> None:
    function = FakeFunction(memory_rows=2)
    assert outcomes(function, 1, 2, 3, 4) == [[2], [4], [6], [8]]
    assert [len(call) for call in function.calls] == [4, 2, 2]
    assert outcomes(FakeFunction(memory_rows=0), 1) == [OutOfMemory]


def test_any_other_failure_fails_the_batch_once() -> None:
    function = FakeFunction()
    assert outcomes(function, 1, float("nan"), 3) == [InferenceFailed] * 3
    assert len(function.calls) == 1


def test_errors_are_not_shared_between_callers() -> None:
    first, second = execute(batch_function(FakeFunction()), [pending(float("nan")), pending(1.0)])
    assert first is not second


@pytest.mark.parametrize("requests", [1, 2])
def test_each_error_says_all_that_the_model_said(requests: int) -> None:
    def busy(inputs: Mapping[str, Array]) -> dict[str, Array]:
        error = Overloaded("the device is busy")
        error.retry_after_s = 7.0
        raise error

    found = execute(batch_function(busy), [pending()] * requests)
    assert [(type(each), str(each)) for each in found] == [(Overloaded, "the device is busy")] * requests
    assert [each.retry_after_s for each in found if isinstance(each, Overloaded)] == [7.0] * requests


@pytest.mark.parametrize(
    ("outcomes", "rejection", "succeeded"),
    [
        ([{}, {}], None, True),
        ([{}, InferenceFailed()], None, False),
        ([InferenceFailed()], None, False),
        ([], InvalidRequest(), False),
    ],
)
def test_a_call_succeeded_if_all_its_requests_did(
    outcomes: list[Outcome], rejection: ServingError | None, succeeded: bool
) -> None:
    assert Execution(outcomes, 0.0, 1.0, 0, 0.0, rejection).succeeded == succeeded


@pytest.mark.parametrize("batchable", [True, False])
def test_without_a_device_a_batch_is_run_by_the_first_replica(batchable: bool) -> None:
    first, second = FakeFunction(), FakeFunction()
    function = batch_function(FakeFunction(), replicas=[first, second], batchable=batchable)
    execute(function, [pending()])
    run_together(function, [pending()])
    assert (len(first.calls), second.calls) == (2, [])
    execute_timed(function, [pending()], lambda: 0.0, replica=1)
    assert len(second.calls) == 1


def test_an_unexpected_exception_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    def broken(inputs: object) -> dict[str, Array]:
        raise KeyError("secret")

    with caplog.at_level(logging.ERROR):
        (found,) = execute(batch_function(broken), [pending()])
    assert str(found) == "The model failed"
    assert "secret" in caplog.text


def test_outputs_that_do_not_follow_the_rows_are_computed_one_by_one() -> None:
    calls = []

    def distinct(inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        calls.append(len(x))
        return {"y": np.unique(x)}

    function = batch_function(distinct, 8)
    requests = [pending(1.0, 2), pending(2.0, 2)]
    execution = execute_timed(function, requests, lambda: 0.0)
    assert [each["y"].tolist() for each in execute(function, requests) if isinstance(each, dict)] == [[1], [2]]
    assert calls == [4, 4, 2, 2]
    assert str(execution.rejection) == "Output 'y' has shape (2,) for a batch of 4 rows"
    assert (execution.padded_rows, execution.padding_ratio) == (0, 0.0)


def test_after_a_row_count_mismatch_nothing_is_shared(caplog: pytest.LogCaptureFixture) -> None:
    function = batch_function(FakeFunction(), 8)
    function.stop_batching("Output 'y' has shape (2,)")
    function.stop_batching("and once more")
    assert not function.batchable
    assert padding_of(function, [pending(1.0, 3)])[0] == 0
    assert "one by one from now on: Output 'y' has shape (2,)" in caplog.text
    assert "once more" not in caplog.text


def test_executing_a_batch_writes_nothing_that_is_shared_with_the_event_loop() -> None:
    """It runs on a device thread."""
    padding = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0})
    for run in (FakeFunction(), lambda inputs: {"y": inputs["x"][:1, :1]}):
        function = batch_function(run, padding=padding)
        before = {name: getattr(function, name) for name in function.__slots__}
        of_padding = {name: getattr(padding, name) for name in padding.__slots__}
        requests = of_lengths(1, 2, 3)
        of_requests = [(each.inputs, each.rows, each.reply, each.lane) for each in requests]
        execute_timed(function, requests, lambda: 0.0)
        assert {name: getattr(function, name) for name in function.__slots__} == before
        assert {name: getattr(padding, name) for name in padding.__slots__} == of_padding
        assert [(each.inputs, each.rows, each.reply, each.lane) for each in requests] == of_requests


def test_rank_0_outputs_cannot_be_split() -> None:
    with pytest.raises(RowCountMismatch, match="'y'"):
        split({"y": np.float32(1.0) + np.zeros(())}, [1, 1], 2)


def test_a_request_without_rows_beside_one_with_all_of_them_gets_none() -> None:
    found = split({"y": np.arange(4)}, [4, 0], 4)
    assert [each["y"].tolist() for each in found] == [[0, 1, 2, 3], []]


def test_padded_rows() -> None:
    assert padding_of(batch_function(FakeFunction(), 8), [pending(rows=3), pending(rows=2)])[0] == 3


def test_strings_are_stacked_and_padded() -> None:
    requests = [pending(), pending()]
    for request, text in zip(requests, (b"a", b"bc"), strict=True):
        request.inputs = {"s": np.array([text], object)}
    stacked = assemble(requests, 2, 4)["s"]
    assert stacked.tolist() == [b"a", b"bc", b"a", b"a"]


def test_no_row_of_another_caller_leaks_into_an_answer() -> None:
    (found,) = execute(batch_function(lambda inputs: {"y": inputs["x"]}, 8), [pending(5.0, 3)])
    assert isinstance(found, dict)
    np.testing.assert_array_equal(found["y"], rows_of(5.0, 3)["x"])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 3))
def test_each_request_gets_its_own_rows_of_each_output(request_rows: list[int], outputs: int) -> None:
    def model(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {f"y{n}": inputs["x"] + n for n in range(outputs)}

    requests = [pending(10.0 * number, rows) for number, rows in enumerate(request_rows)]
    found = execute(batch_function(model, 32), requests)
    for number, (answer, rows) in enumerate(zip(found, request_rows, strict=True)):
        assert isinstance(answer, dict)
        assert list(answer) == [f"y{n}" for n in range(outputs)]
        for n, array in enumerate(answer.values()):
            assert array.tolist() == (rows_of(10.0 * number, rows)["x"] + n).tolist()


def test_an_execution_tells_its_time_and_its_padding() -> None:
    clock = iter([3.0, 3.25, 4.5, 5.0])
    requests = [pending(rows=3), pending(rows=2)]
    execution = execute_timed(batch_function(FakeFunction(), 8), requests, lambda: next(clock))
    assert (len(execution.outcomes), execution.started_s, execution.ended_s, execution.padded_rows) == (2, 3, 5, 3)
    assert (execution.input_s, execution.output_s) == (0.25, 0.5)


def test_of_requests_that_run_alone_nothing_is_put_together_or_taken_apart() -> None:
    clock = iter([3.0, 3.0, 5.0])
    execution = execute_timed(batch_function(FakeFunction(), batchable=False), [pending()], lambda: next(clock))
    assert (execution.started_s, execution.ended_s, execution.input_s, execution.output_s) == (3, 5, 0, 0)


def wasted(requests: list[PendingRequest], **more: object) -> float:
    return execute_timed(batch_function(FakeFunction(), 8, **more), requests, lambda: 0.0).padding_ratio


def test_an_execution_tells_how_much_of_it_was_padding() -> None:
    assert wasted([pending(rows=5)]) == 3 / 8
    assert wasted([pending(rows=3), pending(rows=2)]) == 3 / 8
    assert wasted([pending(rows=1), pending(rows=3)]) == 0
    assert wasted([pending(rows=0)]) == 0
    assert wasted([pending(rows=5)], batchable=False) == 0  # it runs as it came


def test_padding_of_inner_shapes_is_waste_too() -> None:
    assert wasted(of_lengths(4, 2, 1), padding=LENGTHS) == 1 - 7 / 16
    assert wasted(of_lengths(4, 2), padding=LENGTHS) == 1 - 6 / 8
    assert padding_of(batch_function(FakeFunction(), 8, padding=LENGTHS), of_lengths(4, 2, 1))[0] == 1
    assert wasted(of_lengths(3, 3, 3, 3), padding=LENGTHS) == 0
    assert wasted(of_lengths(3, 3, 3), padding=LENGTHS) == 1 / 4
    assert wasted(of_lengths(3, rows=5), padding=LENGTHS) == 3 / 8
    assert wasted(of_lengths(2, 3, rows=0), padding=LENGTHS) == 0
    assert wasted(of_lengths(0, 0, 0), padding=LENGTHS) == 0  # there are no elements at all


def test_padding_to_a_compiled_size_is_waste_too() -> None:
    compiled = replace(LENGTHS, buckets=ShapeBuckets((8,)), compiled=frozenset({(1, ((8,),)), (4, ((8,),))}))
    assert wasted(of_lengths(2), padding=compiled) == 6 / 8
    assert wasted(of_lengths(8, 8, 8), padding=compiled) == 1 / 4
    assert wasted(of_lengths(2, 1), padding=compiled) == 1 - 3 / 4  # of two rows: no such call was compiled


LENGTHS = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0})


def of_lengths(*lengths: int, rows: int = 1) -> list[PendingRequest]:
    return [
        PendingRequest({"x": np.full((rows, length), length, np.float32)}, rows, FakeReply(), 0.0) for length in lengths
    ]


def test_requests_of_different_shapes_share_a_call_and_get_their_own_shapes() -> None:
    function = FakeFunction()
    found = execute(batch_function(function, padding=LENGTHS), of_lengths(2, 3, 1))
    assert [each["y"].tolist() for each in found if isinstance(each, dict)] == [[[4, 4]], [[6, 6, 6]], [[2]]]
    assert function.calls == [[2, 3, 1, 2]]


def test_equal_shapes_are_stacked_as_ever() -> None:
    function = FakeFunction()
    execute(batch_function(function, padding=LENGTHS), of_lengths(2, 2))
    assert LENGTHS.enabled
    assert function.calls == [[2, 2]]


def test_equal_shapes_are_not_held_to_what_padding_needs() -> None:
    padding = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0})
    function = batch_function(lambda inputs: {"y": inputs["x"][:, :1]}, padding=padding)
    found = execute(function, of_lengths(2, 2))
    assert [each["y"].tolist() for each in found if isinstance(each, dict)] == [[[2]], [[2]]]
    assert padding.enabled


def test_requests_without_rows_keep_their_shapes() -> None:
    convolution = Convolution()
    for run in (FakeFunction(), convolution):
        found = execute(batch_function(run, padding=LENGTHS), of_lengths(2, 3, rows=0))
        assert [each["y"].shape for each in found if isinstance(each, dict)] == [(0, 2), (0, 3)]
    assert convolution.shapes == [(0, 2), (1, 2), (0, 3), (1, 3)]


def test_one_bad_request_among_different_shapes_fails_alone() -> None:
    requests = of_lengths(2, 3, 1, 4)
    requests[1].inputs = {"x": np.full_like(requests[1].inputs["x"], -1)}
    found = execute(batch_function(FakeFunction(), padding=LENGTHS), requests)
    assert [each["y"].shape if isinstance(each, dict) else type(each) for each in found] == [
        (1, 2), InvalidRequest, (1, 1), (1, 4),
    ]  # fmt: skip


def test_inputs_may_come_in_any_order() -> None:
    padding = ShapePadding({"a": ("a",), "b": ("b",)}, {"y": ("a",)}, {"a": 0, "b": 0})
    sent = [{"a": np.ones((1, 2)), "b": np.ones((1, 3))}, {"b": np.ones((1, 2)), "a": np.ones((1, 3))}]
    function = batch_function(lambda inputs: {"y": inputs["a"]}, padding=padding)
    found = execute(function, [PendingRequest(inputs, 1, FakeReply(), 0.0) for inputs in sent])
    assert [each["y"].shape for each in found if isinstance(each, dict)] == [(1, 2), (1, 3)]


def test_an_output_that_does_not_follow_as_it_did_ends_the_padding(caplog: pytest.LogCaptureFixture) -> None:
    padding = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0})
    function = batch_function(lambda inputs: {"y": inputs["x"][:, :2]}, padding=padding)
    found = execute(function, of_lengths(1, 2, 3))
    assert [each["y"].tolist() for each in found if isinstance(each, dict)] == [[[1]], [[2, 2]], [[3, 3]]]
    assert not padding.enabled
    assert not function.batchable
    assert "output 'y' has shape (4, 2), not (4, 3)" in caplog.text


def test_a_batch_in_flight_can_be_printed() -> None:
    lane = Lane(KEY, batch_function(FakeFunction()))
    batch = BatchInFlight(lane, [pending(rows=2), pending()], "idle")
    assert repr(batch) == "<BatchInFlight m/1/serving_default: 3 rows of 2 requests, idle>"
    batch.merge(Lane(LaneKey("m", 1, "other"), batch_function(FakeFunction())), [pending()])
    assert repr(batch) == "<BatchInFlight m/1/serving_default: 4 rows of 3 requests, 2 lanes, idle>"


def test_what_rows_and_shape_do_not_tell_of_a_call_are_its_elements() -> None:
    plain = batch_function(FakeFunction())
    assert elements_of(plain, [pending(rows=3)]) == 0
    assert elements_of(batch_function(FakeFunction(), padding=LENGTHS), of_lengths(3, 5)) == 2 * 5
    assert elements_of(batch_function(FakeFunction(), batchable=False), [pending(rows=3), pending(rows=9)]) == 18
    text = pending()
    text.inputs = {"s": np.array([b"a", b"bcd"], object)}
    assert elements_of(plain, [text]) == 4
    ragged = batch_function(FakeFunction(), ragged=RaggedRows({"x": ["splits"]}))
    text.inputs = {"x": np.zeros(7), "splits": np.array([0, 7])}
    assert elements_of(ragged, [text]) == 9


def test_requests_that_run_alone_are_run_once_each_and_harm_no_other() -> None:
    calls = []

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        calls.append(inputs["x"][0, 0])
        return FakeFunction()(inputs)

    function = batch_function(run, batchable=False)
    found = execute_timed(function, [pending(each) for each in (1.0, -2.0, 3.0, float("nan"), 5.0)], lambda: 0.0)
    assert [type(each) for each in found.outcomes] == [dict, InvalidRequest, dict, InferenceFailed, dict]
    assert len(calls) == 5


def test_of_requests_that_run_alone_those_that_left_meanwhile_are_not_run() -> None:
    function = FakeFunction()
    clock = iter([0.0, 1.0, 2.0, 3.0])
    requests = [pending(1.0), pending(2.0, deadline_s=2.0), pending(3.0)]
    requests[2].reply.set_result("cancelled")
    found = execute_timed(batch_function(function, batchable=False), requests, lambda: next(clock))
    assert [type(each) for each in found.outcomes] == [dict, DeadlineExceeded, DeadlineExceeded]
    assert function.calls == [[1.0]]


def test_a_lone_request_that_left_before_its_device_began_is_not_run_either() -> None:
    function = FakeFunction()
    late = [pending(1.0, deadline_s=3.0)]
    found = execute_timed(batch_function(function, batchable=False), late, lambda: 3.0)
    assert [type(each) for each in found.outcomes] == [DeadlineExceeded]
    assert function.calls == []


def test_a_batch_that_cannot_be_put_together_for_lack_of_memory_is_run_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limited(requests: Sequence[PendingRequest], own_rows: int, rows: int) -> dict[str, Array]:
        if rows > 2:
            raise MemoryError
        return assemble(requests, own_rows, rows)

    monkeypatch.setattr("app.batching.batch.assemble", limited)
    function = FakeFunction()
    assert outcomes(function, 1, 2, 3, 4) == [[2], [4], [6], [8]]
    assert [len(call) for call in function.calls] == [2, 2]


def test_a_part_of_a_merged_batch_is_counted_by_the_functions_of_its_requests() -> None:
    ours, theirs = batch_function(FakeFunction()), batch_function(FakeFunction())
    ours.requests_under_way, theirs.requests_under_way = 2, 1
    requests = [pending(1.0), pending(2.0), pending(3.0, 2)]
    batch = BatchInFlight(Lane(KEY, ours), requests[:2], "idle")
    batch.merge(Lane(KEY._replace(signature="other"), theirs), requests[2:])
    part = batch.part(requests[1:])
    assert (part.rows, part.reason, part.is_group) == (3, "retry", True)
    part.leave()
    assert (ours.requests_under_way, theirs.requests_under_way) == (1, 0)


def measured(batch: BatchInFlight) -> dict[int, float]:
    curve = batch.costs.curve
    return {} if curve is None else {rows: curve.call_s(rows) for rows in batch.costs.measured}


@pytest.mark.parametrize(("batchable", "expected"), [(True, {4: 6.0}), (False, {1: 2.0})])
def test_a_call_costs_its_padded_rows_and_what_runs_alone_its_share(
    batchable: bool, expected: dict[int, float]
) -> None:
    function = batch_function(FakeFunction(), 8, batchable=batchable)
    batch = BatchInFlight(Lane(KEY, function), [pending(), pending(), pending()], "idle")
    batch.record_latency(6.0, inf)
    assert measured(batch) == expected


def test_what_failed_or_was_merged_is_no_cost_of_its_lane() -> None:
    function = batch_function(FakeFunction(), 8)
    failed = BatchInFlight(Lane(KEY, function), [pending()], "idle")
    failed.record_latency(6.0, inf, succeeded=False)
    assert measured(failed) == {}
    merged = BatchInFlight(Lane(KEY, function), [pending()], "idle")
    merged.merge(Lane(LaneKey("m", 1, "f", (), ((3,),), True), function), [pending()])
    merged.record_latency(6.0, inf)
    assert measured(merged) == {}


def test_what_a_batch_is_expected_to_take_is_0_until_it_is_known() -> None:
    batch = BatchInFlight(Lane(KEY, batch_function(FakeFunction(), 8)), [pending(rows=3)], "idle")
    assert batch.expected_s == 0.0
    batch.record_latency(6.0, inf)
    assert batch.expected_s == 6.0
    assert batch.function.last_costs is batch.costs


def test_a_batch_is_quick_if_it_is_known_to_take_less_than_the_limit() -> None:
    batch = BatchInFlight(Lane(KEY, batch_function(FakeFunction(), 8)), [pending(rows=3)], "idle")
    assert batch.is_quick(1e9) is False
    batch.record_latency(1.0, 5.0)
    just_s = batch.costs.undisturbed_s(4)
    assert (batch.is_quick(just_s), batch.is_quick(just_s + 0.01)) == (False, True)
    batch.function.steady = False
    assert not batch.is_quick(1e9)


def test_a_batch_that_was_quick_and_becomes_slow_is_quick_no_longer() -> None:
    batch = BatchInFlight(Lane(KEY, batch_function(FakeFunction(), 8)), [pending(rows=3)], "idle")
    batch.record_latency(1.0, 5.0)
    assert batch.is_quick(5.0)
    for _ in range(50):
        batch.record_latency(20.0, 5.0)
    assert not batch.is_quick(5.0)
    batch.record_latency(0.5, 5.0, succeeded=False)  # it failed early
    assert not batch.is_quick(5.0)
    batch.record_latency(1.0, 5.0)
    assert batch.is_quick(5.0)
