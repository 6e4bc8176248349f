"""Trees of requests that arrive together are what each is by itself, also if some of them are malformed."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest, RequestTooLarge, ServingError
from app.core.inference import Array
from app.pipelines.fold.forest import Forest, ForestRules, compile_forest
from app.pipelines.fold.forests import ForestInputs, compile_forests
from tests.pipelines.fold.driver import random_tree, seeded
from tests.pipelines.fold.test_recursion import random_forest

RULES = ForestRules(2, 1000)


def asked_tree(leaves: int, seed: int = 0) -> ForestInputs:
    return ForestInputs(leaves, leaves - 1, random_tree(leaves, seeded(seed)), None)


def alone(rules: ForestRules, asked: ForestInputs) -> Forest | ServingError:
    assert asked.children is not None
    try:
        return compile_forest(rules, asked.starts, asked.children, asked.types)
    except ServingError as error:
        return error


def same(found: Forest | ServingError, expected: Forest | ServingError) -> None:
    if isinstance(expected, ServingError):
        assert (type(found), str(found)) == (type(expected), str(expected))
        return
    assert isinstance(found, Forest)
    assert found.starts == expected.starts
    for name in ("children", "operations", "missing", "depth", "roots"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert (found.shared is None) == (expected.shared is None)


def spoilt(random: Random, starts: int, children: Array) -> Array:
    """As it is, mostly; or with a slot that names any node, or none that exists."""
    children = children.astype(random.choice((np.int32, np.int64)))
    if random.random() < 0.2 and children.size:
        children.flat[random.randrange(children.size)] = random.randrange(-3, starts + len(children) + 2)
    return children


@given(
    random=st.randoms(use_true_random=True), slots=st.integers(1, 4), operations=st.integers(1, 3), shared=st.booleans()
)
def test_each_gets_what_it_gets_alone(random: Random, slots: int, operations: int, shared: bool) -> None:
    rules, typed = ForestRules(slots, 25, operations, shared), random.random() < 0.5
    requests = []
    for _ in range(random.randrange(1, 7)):
        starts, children = random_forest(random, slots, shared=shared and random.random() < 0.5)
        children = spoilt(random, starts, children)
        types = np.array([random.randrange(operations + (random.random() < 0.02)) for _ in children], np.int32)
        requests.append(ForestInputs(starts, len(children), children, types if typed else None))
    for found, request in zip(compile_forests(rules, [slots] * operations, requests), requests, strict=True):
        same(found, alone(rules, request))


def test_only_who_breaks_a_rule_is_rejected() -> None:
    cycle = ForestInputs(1, 2, np.array([[0, 2], [1, -1]]), None)
    many = ForestInputs(1000, 1, np.array([[0, 1]]), None)
    floats = ForestInputs(2, 1, np.array([[0.0, 1.0]]), None)
    good, first, second, third, again = compile_forests(RULES, [2], [asked_tree(7), cycle, many, floats, asked_tree(7)])
    assert isinstance(good, Forest)
    assert isinstance(again, Forest)
    assert [type(each) for each in (first, second, third)] == [InvalidRequest, RequestTooLarge, InvalidRequest]
    assert "is its own descendant" in str(first)


def test_a_child_that_its_type_has_no_slot_for_is_rejected_alone() -> None:
    rules = ForestRules(2, 100, operations=2)
    good = ForestInputs(2, 1, np.array([[0, 1]]), np.array([0]))
    bad = good._replace(types=np.array([1]))
    found = compile_forests(rules, [2, 1], [good, bad, good])
    assert [isinstance(each, Forest) for each in found] == [True, False, True]
    assert "node 2 is of type 1: expected children in its first 1 slots only, got [0, 1]" in str(found[1])


def test_chains_need_no_children() -> None:
    rules = ForestRules(1, 100)
    first, second, third = compile_forests(rules, [1], [ForestInputs(1, 3, None, None), ForestInputs(0, 2, None, None),
                                                        ForestInputs(2, 2, None, None)])  # fmt: skip
    assert isinstance(first, Forest)
    assert first.children.tolist() == [[0], [1], [2]]
    assert isinstance(second, Forest)
    assert second.children.tolist() == [[-1], [0]]
    assert isinstance(third, InvalidRequest)


def test_an_error_keeps_nothing_of_the_request() -> None:
    (error,) = compile_forests(RULES, [2], [ForestInputs(1, 1, np.array([[0, 9]]), None)])
    assert isinstance(error, InvalidRequest)
    assert error.__traceback__ is None
