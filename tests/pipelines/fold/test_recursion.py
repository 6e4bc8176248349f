"""Whatever forests share calls, in whatever order and with whatever failures: each is equal to plain recursion."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import Array
from app.pipelines.fold.forest import ForestRules
from tests.pipelines.fold.driver import Driver, Request, by_recursion, part, random_tree, request, seeded


def random_forest(random: Random, slots: int, *, shared: bool) -> tuple[int, Array]:
    """Start nodes and children [inner, slots] of any shape, the inner nodes in any order."""
    starts, inner = random.randrange(6), random.randrange(1, 25)
    roots = list(range(starts))
    children = np.full((inner, slots), -1)
    for node in range(inner):
        for slot in range(slots):
            if roots and random.random() < 0.7:
                at = random.randrange(max(0, len(roots) - random.choice((1, 4, 40))), len(roots))
                children[node, slot] = roots[at] if shared else roots.pop(at)
        roots.append(starts + node)

    order = list(range(inner))
    random.shuffle(order)
    renamed = np.array([*range(starts), *(starts + place for place in order), -1])
    result = np.empty_like(children)
    result[order] = renamed[children]
    return starts, result


def make_request(random: Random, slots: int, operations: int, *, shared: bool) -> Request:
    starts, children = random_forest(random, slots, shared=shared)
    types = np.array([random.randrange(operations) for _ in children], np.int32)
    rules = ForestRules(slots, 100, operations, shared)
    return request(rules, starts, children, types, np.random.default_rng(random.randrange(100)))


def check(driver: Driver, requests: list[Request], cancelled: list[Request]) -> None:
    """The laws at the end."""
    for one in requests:
        if one in cancelled:
            assert one.answer is None
            continue
        assert one.answer is not None, "never complete"
        for name, expected in by_recursion(one).items():
            np.testing.assert_allclose(one.answer[name], expected, atol=1e-6)
    assert len(set(driver.computed)) == len(driver.computed), "computed twice"
    whole = [one for one in requests if one not in cancelled]
    nodes = {(id(one), row) for one in whole for row in one.rows[one.forest.starts :].tolist()}
    assert nodes <= set(driver.computed)
    assert driver.arena.taken == len(driver.agenda) == 0
    assert not any(driver.agenda.ready(operation) for operation in range(driver.operations))


@given(
    random=st.randoms(use_true_random=True), slots=st.integers(1, 4), operations=st.integers(1, 3), shared=st.booleans()
)
def test_laws(random: Random, slots: int, operations: int, shared: bool) -> None:
    driver = Driver(slots, operations, most_rows=random.randrange(1, 6))
    waiting = [make_request(random, slots, operations, shared=shared) for _ in range(random.randrange(1, 12))]
    requests, cancelled = list(waiting), list[Request]()
    doomed = [one for one in requests if random.random() < 0.3]
    steps = 0
    while waiting or driver.flying or driver.calls:
        steps += 1
        assert steps < 20_000, f"stuck: {driver.agenda}"
        match random.randrange(9):
            case 0 | 1 if waiting:
                driver.enter(*[waiting.pop() for _ in range(random.randrange(1, 1 + len(waiting)))])
            case 8 if driver.entered:
                driver.begin(random.choice(driver.entered))
            case 2 if random.random() < 0.3:
                for number in [number for number, one in driver.flying.items() if one in doomed][:1]:
                    cancelled.append(driver.flying[number])
                    driver.cancel(number)
            case 3 | 4:
                driver.take(random.randrange(1, 9), random.randrange(operations))
            case 5 | 6 if driver.calls:
                operation, taken = driver.calls.pop(random.randrange(len(driver.calls)))
                driver.compute(operation, taken)
            case 7 if driver.calls:  # a call that failed: one half is put back, the other computed now or later
                operation, taken = driver.calls.pop(random.randrange(len(driver.calls)))
                middle = random.randrange(len(taken.rows) + 1)
                driver.put_back(part(taken, slice(middle)))
                driver.calls.append((operation, part(taken, slice(middle, None))))
    check(driver, requests, cancelled)


def test_trees_of_many_requests_share_calls() -> None:
    random, rules = seeded(1), ForestRules(2, 1000)
    driver = Driver(2, most_rows=64)
    requests = [
        request(rules, leaves, random_tree(leaves, random), None, np.random.default_rng(leaves))
        for leaves in range(5, 41)
    ]
    driver.add(*requests)
    calls = driver.run(64)
    check(driver, requests, [])
    nodes = sum(one.forest.inner for one in requests)
    assert calls <= max(-(-nodes // 64), *(one.forest.depth.max() for one in requests)) + 5


def test_a_sequence_is_a_chain() -> None:
    steps = 2000
    chain = np.arange(steps)[:, None]  # each step has the state before it as its only child; the first a start node
    one = request(ForestRules(1, 10**4), 1, chain, None, np.random.default_rng(0))
    driver = Driver(1)
    driver.add(one)
    assert driver.run() == steps

    state: Array = one.start["h"]
    c = one.start["c"]
    for word in one.word:  # plain iteration: recursion would be too deep
        c, state = (
            np.tanh(word + 0.3 * c + 0.1 * state.sum(axis=1)).astype(np.float32),
            np.tanh(-word + np.tanh(state)).astype(np.float32),
        )
    assert one.answer is not None
    np.testing.assert_allclose(one.answer["h"], state, atol=1e-6)
    np.testing.assert_allclose(one.answer["c"], c, atol=1e-6)


@pytest.mark.parametrize("requests", [1, 40])
def test_large_requests_with_backlogs(requests: int) -> None:
    random, rules = seeded(2), ForestRules(2, 10**4)
    driver = Driver(2, most_rows=4)
    every = [
        request(rules, 200, random_tree(200, random), None, np.random.default_rng(seed)) for seed in range(requests)
    ]
    for one in every:
        driver.add(one)
    driver.run(4)
    check(driver, every, [])
