"""Whose nodes are next: deep ones first, requests in turns, nothing of cancelled ones."""

from __future__ import annotations

from collections import deque
from itertools import chain
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import Array
from app.pipelines.fold.agenda import Agenda
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.backlog import Backlog
from app.pipelines.fold.forest import ForestRules, SharedNodes, compile_forest
from app.pipelines.fold.shared_parents import SharedParents
from tests.pipelines.fold.driver import random_tree, seeded

RULES = ForestRules(2, 10**6)
BATCH = 64


class World:
    """An agenda whose calls return at once; states are not kept."""

    def __init__(self, rules: ForestRules = RULES, batch: int = BATCH) -> None:
        self.rules, self.batch = rules, batch
        self.agenda = Agenda(rules.slots, rules.operations, most_rows=batch)
        self.arena = Arena({"x": ((), np.dtype(np.int8))}, 10**6, 1 << 30)
        self.rows: dict[int, Array] = {}

    def add(self, starts: int, children: Array) -> int:
        forest = compile_forest(self.rules, starts, children)
        rows = self.arena.allocate(forest.nodes)
        request = self.agenda.add(forest, rows)
        self.agenda.begin(request)
        self.rows[request] = rows
        return request

    def add_tree(self, leaves: int, random: Random) -> int:
        return self.add(leaves, random_tree(leaves, random))

    def call(self) -> tuple[list[int], list[int]]:
        """One call. Returns the request of each node of it, and the requests that are complete then."""
        taken = self.agenda.take(self.batch)
        complete = list(self.agenda.done(taken.rows).complete)
        for request in complete:
            self.arena.free(self.rows.pop(request))
        return taken.requests.tolist(), complete


def ready_of(world: World, request: int) -> int:
    """How many nodes of a request are ready, by giving all others' turns to it."""
    own = world.agenda._own[request]
    return int((world.agenda._missing[own] == 0).sum())


def giant_tree(leaves: int) -> tuple[int, Array]:
    return leaves, np.arange(2 * (leaves - 1)).reshape(leaves - 1, 2)


def test_a_giant_tree_does_not_hold_up_small_ones() -> None:
    random, world = seeded(3), World()
    giant = world.add(*giant_tree(50_000))
    for _ in range(5):
        world.call()
    for _ in range(60):  # small trees come one after another, at any time
        small = world.add_tree(10, random)
        ready = ready_of(world, small)
        first, _ = world.call()
        second, _ = world.call()
        assert first.count(small) + second.count(small) >= ready
        assert len(first) == len(second) == BATCH
        assert giant in first
        for _ in range(random.randrange(12)):
            world.call()


def test_small_trees_do_not_starve_a_giant_one() -> None:
    """More small trees arrive, for ever, than calls have room for: each gets its share, and the giant, too."""
    random, world = seeded(4), World(batch=8)
    giant = world.add(*giant_tree(3000))
    rows = 0
    for _ in range(400):
        for _ in range(2):
            world.add_tree(10, random)
        rows += world.call()[0].count(giant)
    assert rows >= 20
    waited: deque[int] = deque(sorted(set(world.rows) - {giant}))
    for _ in range(4000):
        if giant not in world.rows:
            break
        world.call()
    assert giant not in world.rows
    assert not set(waited) & set(world.rows)


def test_new_requests_without_end_overtake_none_for_ever() -> None:
    world = World(batch=4)
    wide = world.add(*giant_tree(100))
    for _ in range(3000):
        for _ in range(4):
            world.add(2, np.array([[0, 1]]))  # enough to fill each call
        world.call()
        if wide not in world.rows:
            return
    pytest.fail("the older request was not computed")


def test_equal_requests_get_equal_shares() -> None:
    world = World(batch=10)
    requests = [world.add(*giant_tree(400)) for _ in range(7)]
    counts = dict.fromkeys(requests, 0)
    for _ in range(50):
        for request in world.call()[0]:
            counts[request] += 1
    assert max(counts.values()) - min(counts.values()) <= 2


def test_idle_calls_are_not_held_against_who_used_them() -> None:
    world = World(batch=10)
    first = world.add(*giant_tree(2000))
    for _ in range(100):
        world.call()
    second = world.add(*giant_tree(2000))
    counts = [world.call()[0].count(first) for _ in range(20)]
    assert sum(counts) >= 90
    assert second in world.rows


def test_turns_that_were_not_used_are_not_saved_up() -> None:
    """A request that had one ready node for long, and has many now, is no further ahead than one that comes now."""
    world = World(ForestRules(2, 10**6, shared=True), batch=10)
    steps, wide = 100, 600
    chain = np.stack([np.arange(steps), np.full(steps, -1)], axis=1)
    fan = np.full((wide, 2), (steps, -1))  # all of them have the last node of the chain as their child
    slow = world.add(1, np.concatenate((chain, fan)))
    others = [world.add(*giant_tree(3000)) for _ in range(2)]
    for _ in range(steps):
        assert world.call()[0].count(slow) == 1
    counts = [0, 0, 0]
    for _ in range(30):
        requests, _ = world.call()
        counts = [count + requests.count(each) for count, each in zip(counts, (slow, *others), strict=True)]
    assert max(counts) - min(counts) <= 12


def test_deep_nodes_come_first() -> None:
    world = World(batch=2)
    # Nodes 8 to 11 are a chain, 11 the root. Of the others that are ready at once, 12 and 13, both are nearer to it.
    children = np.array([[0, 1], [8, 2], [9, 14], [10, 12], [3, 4], [5, 6], [13, 7]])
    request = world.add(8, children)
    node_of = {row: node for node, row in enumerate(world.rows[request].tolist())}
    order = []
    while world.rows:
        taken = world.agenda.take(2)
        order.append(sorted(node_of[row] for row in taken.rows.tolist()))
        world.rows = {} if world.agenda.done(taken.rows).complete else world.rows
    assert order == [[8, 13], [9, 14], [10, 12], [11]]


def test_a_wide_request_is_taken_level_by_level() -> None:
    """The deepest nodes first leave no long way for the end, where little shares a call."""
    random, world = seeded(6), World()
    world.add_tree(20_000, random)
    (forest_rows,) = world.rows.values()
    calls = 0
    while world.rows:
        calls += 1
        world.call()
    assert calls <= 19_999 / BATCH + 120
    assert len(forest_rows) == 39_999


@pytest.mark.parametrize("in_call", [False, True])
def test_cancel(in_call: bool) -> None:
    random, world = seeded(7), World(batch=4)
    gone, other = world.add_tree(30, random), world.add_tree(30, random)
    taken = world.agenda.take(4) if in_call else None
    assert world.agenda.cancel(gone) is not in_call
    if taken is not None:
        assert not world.agenda.cancel(gone), "a second cancel has no effect"
        assert gone in taken.requests
        assert "1 cancelled" in repr(world.agenda)
        returned = world.agenda.done(taken.rows[:2]), world.agenda.put_back(taken.rows[2:])
        assert [*returned[0].gone, *returned[1].gone] == [gone]
    world.arena.free(world.rows.pop(gone))
    nodes = 0
    while world.rows:
        requests, _ = world.call()
        assert set(requests) == {other}
        nodes += len(requests)
    assert nodes >= 25
    assert repr(world.agenda) == "<Agenda of 0 requests, 0 cancelled; ready by operation: 0>"


def test_a_large_request_is_cancelled_with_its_backlog() -> None:
    random, world = seeded(8), World(batch=2)
    large, small = world.add(*giant_tree(500)), world.add_tree(10, random)
    world.call()
    assert world.agenda.cancel(large)
    assert world.agenda.ready() < 10
    assert set(world.call()[0]) == {small}


def test_a_forest_without_inner_nodes_is_not_added() -> None:
    with pytest.raises(ValueError, match="expected a forest with inner nodes"):
        World().add(2, np.zeros((0, 2), int))


def test_taking_nothing() -> None:
    world = World()
    assert world.agenda.take(4).children.shape == (2, 0)
    world.add_tree(10, seeded(0))
    world.add(*giant_tree(5000))
    ready = world.agenda.ready()
    assert world.agenda.take(0).rows.size == 0
    assert world.agenda.ready() == ready
    world.call()
    assert world.agenda.take(0).rows.size == 0
    while world.rows:
        world.call()


def test_memory_is_bounded_and_given_back() -> None:
    world = World()
    small = len(world.agenda._key)
    for _ in range(3):
        request = world.add(*giant_tree(50_000))
        assert len(world.agenda._key) > 10 * small
        world.call()
        assert world.agenda.cancel(request)
        world.arena.free(world.rows.pop(request))
        assert len(world.agenda._key) == small
    for _ in range(300):  # many requests, at all times few
        world.add(2, np.array([[0, 1]]))
        world.call()
    assert len(world.agenda._left) == 64


@given(
    data=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), max_size=30),
    random=st.randoms(use_true_random=True),
)
def test_a_backlog_is_a_sorted_set(data: list[tuple[int, int]], random: Random) -> None:
    backlog, model, fresh = Backlog(), list[int](), iter(random.sample(range(2000), 2000))
    for pushed, popped in data:
        keys = [next(fresh) for _ in range(pushed)]
        backlog.push(np.array(keys))
        model = sorted(model + keys)
        assert backlog.pop(popped).tolist() == model[:popped]
        model = model[popped:]
        assert len(backlog) == len(model)
    assert repr(backlog).startswith(f"<Backlog of {len(model)} nodes in ")
    assert len(backlog._runs) <= 2 + len(model).bit_length()


@given(random=st.randoms(use_true_random=True))
def test_shared_parents_survive_being_moved(random: Random) -> None:
    shared, model = SharedParents(), dict[int, dict[int, list[int]]]()
    for request in range(30):
        parents = {node: [random.randrange(50) for _ in range(random.randrange(2, 6))] for node in range(3)}
        rows = 1 + 60 * request + np.array(random.sample(range(60), 60))
        first = np.cumsum([0] + [len(each) for each in parents.values()])
        shared.add(request, SharedNodes(np.arange(3), first, np.concatenate(list(parents.values()))), rows)
        model[request] = {int(rows[node]): rows[each].tolist() for node, each in parents.items()}
        if random.random() < 0.6:
            gone = random.choice(list(model))
            shared.remove(gone)
            del model[gone]
        expected = {row: each for own in model.values() for row, each in own.items()}
        if expected:
            assert shared.of(np.array(list(expected))).tolist() == list(chain.from_iterable(expected.values()))
        assert bool(shared) == bool(model)
    assert len(shared._log) <= 4 * sum(map(len, expected.values())) + 4 * 18
