import logging
from math import inf

import pytest

from app.batching.costs.cost_model import Costs
from app.batching.shapes.padding import ShapePadding
from tests.support.fakes import FakeFunction, batch_function


def shape(width: int) -> tuple[tuple[int, ...], ...]:
    return ((width, 10),)


def test_the_costs_of_a_shape_in_use_survive_hundreds_of_others() -> None:
    function = batch_function(FakeFunction())
    hot = function.costs(shape(1))
    for width in range(2, 1000):
        function.costs(shape(width))
        assert function.costs(shape(1)) is hot
    assert len(function.learnt) == 256
    assert shape(2) not in function.learnt


def test_the_costs_of_a_new_shape_are_guessed_from_those_of_its_magnitude() -> None:
    function = batch_function(FakeFunction())
    for width, call_s in ((4, 1.0), (1000, 300.0)):
        costs = function.costs(shape(width))
        costs.record_call(4, call_s)
        function.record_costs(shape(width), costs)
    small, large = function.costs(shape(5)), function.costs(shape(2000))
    assert [costs.curve.call_s(4) for costs in (small, large) if costs.curve] == [1.25, 600.0]
    assert [*small.measured, *large.measured] == []


def test_nothing_is_guessed_of_a_shape_that_is_much_larger_or_smaller_than_all_others() -> None:
    """By elements a call of 1000 times as many takes 1000 times as long: admission would reject it again and again."""
    function = batch_function(FakeFunction())
    costs = function.costs(shape(40))
    costs.record_call(1, 1.0)
    function.record_costs(shape(40), costs)
    assert function.costs(shape(40_000)).curve is None
    assert function.costs(shape(4)).curve is None


def test_a_forgotten_shape_gets_its_costs_back_as_a_guess() -> None:
    function = batch_function(FakeFunction())
    costs = function.costs(shape(7))
    costs.record_call(1, 3.0)
    function.record_costs(shape(7), costs)
    for width in range(100, 400):
        function.costs(shape(width))
    assert shape(7) not in function.learnt
    again = function.costs(shape(7))
    assert again is not costs
    assert again.curve is not None
    assert again.curve.call_s(1) == 3.0


def test_a_guess_holds_until_the_first_call_and_makes_no_call_quick() -> None:
    costs = Costs(batch_function(FakeFunction()).sizes, guess={1: 1.0, 2: 1.0, 4: 1.0})
    margin = costs.margin
    assert costs.undisturbed_s(1) == inf
    costs.record_call(4, 10.0)
    assert costs.curve is not None
    assert costs.curve.call_s(4) == 10.0
    assert costs.margin == margin


def test_a_guess_is_scaled_by_the_elements_of_all_inputs() -> None:
    function = batch_function(FakeFunction())
    costs = function.costs(((4,), (2, 3)))
    costs.record_call(4, 1.0)
    function.record_costs(((4,), (2, 3)), costs)
    guess = function.costs(((6,), (2, 7))).curve
    assert guess is not None
    assert guess.call_s(4) == 2.0
    assert function.costs(((), ())).curve is None, "two elements are far from ten"


def test_a_shape_without_elements_counts_as_one() -> None:
    function = batch_function(FakeFunction())
    costs = function.costs(((0,),))
    costs.record_call(4, 3.0)
    function.record_costs(((0,),), costs)
    guess = function.costs(((2,),)).curve
    assert guess is not None
    assert guess.call_s(4) == 6.0


def test_of_two_magnitudes_the_nearer_one_is_the_guess_and_the_later_one_of_the_same() -> None:
    function = batch_function(FakeFunction())
    for width, call_s in ((1, 1.0), (64, 50.0), (100, 300.0)):
        costs = function.costs(((width,),))
        costs.record_call(4, call_s)
        function.record_costs(((width,),), costs)
    guesses = [function.costs(((width,),)).curve for width in (2, 50)]
    assert [guess.call_s(4) for guess in guesses if guess] == [2.0, 150.0]


def test_a_guess_is_made_from_its_own_magnitude_or_else_from_the_smaller_one() -> None:
    function = batch_function(FakeFunction())

    def call(width: int, call_s: float) -> None:
        costs = function.costs(((width,),))
        costs.record_call(4, call_s)
        function.record_costs(((width,),), costs)
        assert function.last_costs is costs

    def guess(width: int) -> float | None:
        curve = function.costs(((width,),)).curve
        return None if curve is None else curve.call_s(4)

    call(40, 400.0)
    call(10, 1.0)
    assert guess(20) == 2.0
    call(16, 80.0)
    assert guess(24) == 120.0


def test_measured_estimates_go_before_a_guess() -> None:
    function = batch_function(FakeFunction(), initial_estimates={4: 7.0})
    function.record_costs(shape(1), function.costs(shape(1)))
    costs = function.costs(shape(2))
    assert costs.curve is not None
    assert costs.curve.call_s(4) == 7.0


def test_after_the_last_request_has_left_it_is_told() -> None:
    told: list[int] = []
    function = batch_function(FakeFunction(), on_idle=lambda: told.append(1))
    function.requests_under_way = 4
    function.leave()
    assert (function.requests_under_way, told) == (3, [])
    function.leave(3)
    assert (function.requests_under_way, told) == (0, [1])


def test_what_runs_alone_runs_one_by_one_and_on_the_device_that_it_has_a_replica_for() -> None:
    own, replicas = FakeFunction(), [FakeFunction(), FakeFunction()]
    function = batch_function(own, 8, replicas=replicas)
    assert function.max_rows == 8
    assert [function.on(device) for device in range(3)] == [*replicas, own]
    function.stop_batching("a call said so")
    assert function.max_rows == 1


def test_nobody_has_to_be_told_when_the_last_request_leaves() -> None:
    function = batch_function(FakeFunction(), requests_under_way=1)
    function.leave()
    assert function.requests_under_way == 0


@pytest.mark.parametrize(("padded", "text"), [(True, "Padding went otherwise"), (False, "requests run one by one")])
def test_batching_stops_for_good_with_its_padding_and_says_so_once(
    padded: bool, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0}) if padded else None
    function = batch_function(FakeFunction(), padding=padding)
    with caplog.at_level(logging.WARNING):
        function.stop_batching("y has 3 rows of 4")
        function.stop_batching("y has 2 rows of 4")
    assert not function.batchable
    assert padding is None or not padding.enabled
    (message,) = caplog.messages
    assert text in message
    assert message.endswith("y has 3 rows of 4")
