"""The oracle is the direct call of the model, and the calls that it was given."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from app.batching.proof.refused_call import IN_PARTS, SEARCH, WITHOUT_PADDING, look_into
from app.core.errors import InferenceFailed, InvalidRequest
from app.core.inference import Array
from tests.support.fakes import batch_function, pending


class Model:
    """Doubles rows, unless `accepts` refuses them; notes the values of each call."""

    def __init__(self, accepts: Callable[[Array], object]) -> None:
        self.accepts = accepts
        self.calls: list[list[float]] = []

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        self.calls.append(x[:, 0].tolist())
        if not self.accepts(x):
            raise InvalidRequest("the model rejects this")
        return {"y": x * 2}


@pytest.mark.parametrize("most", [2, 3, 16, 24, 48, 63])
def test_a_request_of_more_rows_than_the_model_takes_is_answered_and_each_call_noted(most: int) -> None:
    model = Model(lambda x: len(x) <= most)
    function, request = batch_function(model, 64), pending(5.0, 64)
    refusal = look_into(function, [request], model)
    np.testing.assert_array_equal(refusal.outcome["y"], request.inputs["x"] * 2)
    assert (refusal.rows, refusal.found) == (64, most)
    accepted = [len(call) <= most for call in model.calls]
    assert [each.accepted for each in refusal.calls] == accepted
    parts = -(-64 // most)
    assert [each.why for each in refusal.calls[-parts:]] == [IN_PARTS] * parts
    assert {each.why for each in refusal.calls[:-parts]} == {SEARCH}
    assert len(model.calls) - parts <= 2 + 6


def test_a_row_that_is_refused_by_itself_ends_the_search_after_a_call_of_one_row() -> None:
    model = Model(lambda x: False)
    refusal = look_into(batch_function(model, 64), [pending(5.0, 64)], model)
    assert (refusal.outcome, refusal.found, refusal.calls) == (None, 0, [(SEARCH, False)])
    assert model.calls == [[5.0]]


def test_a_search_that_is_not_due_costs_no_call() -> None:
    model = Model(lambda x: False)
    function = batch_function(model, 64)
    function.row_limit.accepted_rows = 64
    assert look_into(function, [pending(5.0, 64)], model) == (64, None, None, [])
    assert not model.calls


def test_a_known_maximum_is_not_searched_for_again() -> None:
    """The request was placed before it was found."""
    model = Model(lambda x: len(x) <= 24)
    function = batch_function(model, 64)
    function.row_limit.record(64, 24)
    refusal = look_into(function, [pending(5.0, 40)], model)
    assert [len(call) for call in model.calls[-2:]] == [24, 16]
    assert SEARCH not in {each.why for each in refusal.calls}
    assert refusal.outcome is not None


def test_a_request_alone_is_computed_without_its_padding() -> None:
    model = Model(lambda x: len(x) == 3)
    refusal = look_into(batch_function(model, 64), [pending(5.0, 3)], model)
    np.testing.assert_array_equal(refusal.outcome["y"], np.full((3, 2), 10, np.float32))
    assert refusal.calls[0] == (WITHOUT_PADDING, True)


def test_one_of_several_is_tried_only_if_their_number_is_suspected() -> None:
    model = Model(lambda x: len(x) <= 24)
    function, requests = batch_function(model, 64), [pending(5.0, 20), pending(6.0, 20)]
    assert look_into(function, requests, model) == (64, None, None, [])
    function.row_limit.suspect(64)
    refusal = look_into(function, requests, model)
    assert (refusal.outcome, refusal.found) == (None, 24)
    assert {value for call in model.calls for value in call} == {5.0}


def test_a_search_that_fails_leaves_the_rejection_as_it_is() -> None:
    def fails(inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise InferenceFailed("the model failed")

    refusal = look_into(batch_function(fails, 64), [pending(5.0, 64)], fails)
    assert (refusal.outcome, refusal.found, refusal.calls) == (None, None, [(SEARCH, False)])
