"""Forests are checked and compiled: malformed ones are rejected with the node named, of any size in linear time."""

from __future__ import annotations

import re
import time
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest, RequestTooLarge
from app.core.inference import Array
from app.pipelines.fold.forest import Forest, ForestRules, compile_forest

BINARY = ForestRules(2, 10**7)
GRAPH = ForestRules(2, 10**7, shared=True)


def compiled(starts: int, children: list[list[int]], rules: ForestRules = BINARY) -> Forest:
    return compile_forest(rules, starts, np.array(children, np.int32).reshape(-1, rules.slots))


def rejected(starts: int, children: object, rules: ForestRules = BINARY, **more: Array) -> str:
    with pytest.raises(InvalidRequest) as error:
        compile_forest(rules, starts, np.asarray(children), **more)
    return str(error.value)


def test_a_tree() -> None:
    forest = compiled(3, [[0, 1], [3, 2]])  # node 3 of two start nodes; node 4, the root, of it and the third
    assert forest.missing.tolist() == [0, 1]
    assert forest.depth.tolist() == [1, 0]
    assert forest.roots.tolist() == [4]
    assert (forest.inner, forest.nodes, forest.shared, forest.operations) == (2, 5, None, None)
    assert repr(forest) == "<Forest of 3 start nodes and 2 inner nodes, 1 roots>"


def test_children_may_come_later_and_slots_may_be_empty() -> None:
    forest = compiled(1, [[2, -1], [0, -1], [-1, -1]])
    assert forest.depth.tolist() == [0, 1, 0]
    assert forest.missing.tolist() == [1, 0, 0]
    assert forest.roots.tolist() == [1, 3]


def test_start_nodes_without_a_parent_are_roots_too() -> None:
    assert compiled(3, [[2, -1]]).roots.tolist() == [0, 1, 3]
    assert compiled(2, []).roots.tolist() == [0, 1]


def test_nodes_with_several_parents() -> None:
    forest = compiled(1, [[0, 0], [1, 0], [1, 2]], GRAPH)
    assert forest.depth.tolist() == [2, 1, 0]
    assert forest.missing.tolist() == [0, 1, 2]
    assert forest.shared is not None
    assert forest.shared.nodes.tolist() == [0, 1]
    assert forest.shared.first.tolist() == [0, 3, 5]
    assert forest.shared.parents.tolist() == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("starts", "children", "says"),
    [
        (2, [[0, 7]], 'input "children": slot 1 of node 2: expected a node from 0 to 2, or -1 for no child, got 7'),
        (2, [[0, 1], [-2, 0]], "slot 0 of node 3: expected a node from 0 to 3, or -1 for no child, got -2"),
        (
            2,
            [[0, 2**63 - 1]],
            "slot 1 of node 2: expected a node from 0 to 2, or -1 for no child, got 9223372036854775807",
        ),
        (2, [[0, -(2**63)]], "got -9223372036854775808"),
        (2, [[0, 1], [1, 2]], "node 1 is a child of nodes 2 and 3; expected one parent at most"),
        (2, [[0, 0]], "node 0 is a child of node 2 in two slots; expected one parent at most"),
        (1, [[0, 1]], "node 1 is its own descendant; expected no cycles"),
        (1, [[0, 2], [1, -1]], "is its own descendant"),
        (0, [[-1, 1], [0, -1]], "each node, node 0 for one, needs a child, and there are no start nodes"),
        (0, np.zeros((0, 2), int), "expected at least one node, got none"),
        (1, [[0.0, 0.0]], "expected int32 or int64 of shape [?,2], got float64 of shape [1,2]"),
        (1, [[True, False]], "expected int32 or int64 of shape [?,2], got bool"),
        (1, [[0, 0, 0]], "expected int32 or int64 of shape [?,2], got int64 of shape [1,3]"),
        (1, [0, 0], "got int64 of shape [2]"),
    ],
)
def test_malformed_forests_name_the_node(starts: int, children: object, says: str) -> None:
    assert says in rejected(starts, children)


def test_a_node_on_the_cycle_is_named_not_one_below_it() -> None:
    said = rejected(1, [[2, 0], [3, -1], [4, -1], [2, -1]], GRAPH)  # 1 -> 2 -> 3 -> 4 -> 2
    assert re.search("node [234] is its own descendant", said)
    said = rejected(0, [[-1, -1], [0, 2], [1, -1]], GRAPH)  # 1 -> 2 -> 1, and 0 below
    assert re.search("node [12] is its own descendant", said)


def test_types_fit_the_inner_nodes() -> None:
    rules, children = ForestRules(2, 100, operations=3, types="kind"), np.array([[0, 1], [2, -1]])
    forest = compile_forest(rules, 2, children, np.array([2, 0]))
    assert forest.operations is not None
    assert forest.operations.tolist() == [2, 0]
    assert 'input "kind": node 3: expected an operation from 0 to 2, got 3' in rejected(
        2, children, rules, types=np.array([0, 3])
    )
    assert "node 2: expected an operation from 0 to 2, got -1" in rejected(2, children, rules, types=np.array([-1, 3]))
    assert 'input "kind": expected int32 or int64 of shape [2], got int64 of shape [3]' in rejected(
        2, children, rules, types=np.array([0, 0, 0])
    )


def test_too_many_nodes() -> None:
    with pytest.raises(RequestTooLarge, match=r"expected a forest of at most 1,000 nodes, got 1,001"):
        compile_forest(ForestRules(2, 1000), 1000, np.array([[0, 1]]))


@given(random=st.randoms(use_true_random=True), size=st.sampled_from([3, 40, 400]), narrow=st.integers(1, 60))
def test_depth_is_the_longest_way_to_a_root(random: Random, size: int, narrow: int) -> None:
    children = np.full((size, 2), -1)
    for node in range(1, size):  # a graph of narrow and wide levels: each node names earlier ones nearby
        children[node] = [random.randrange(max(0, node - narrow), node), random.randrange(-1, node)]
    expected = np.zeros(size, int)
    for node in reversed(range(size)):
        for child in children[node][children[node] >= 0]:
            expected[child] = max(expected[child], expected[node] + 1)
    order = np.array(random.sample(range(size), size))
    renamed = np.full((size, 2), -1)
    renamed[order] = np.append(order, -1)[children]
    forest = compile_forest(GRAPH, 0, renamed)
    assert forest.depth[order].tolist() == expected.tolist()


def chain(nodes: int) -> tuple[int, Array]:
    children = np.full((nodes, 2), -1)
    children[:, 0] = np.arange(nodes)
    return 1, children


def caterpillar(nodes: int) -> tuple[int, Array]:
    children = np.stack([np.arange(nodes), np.arange(nodes) + nodes], axis=1)
    children[0, 0], children[:, 0] = 0, np.concatenate(([0], nodes + 1 + np.arange(1, nodes)))
    children[:, 1] = np.arange(1, nodes + 1)
    children[1:, 0] -= 1
    return nodes + 1, children


def balanced(nodes: int) -> tuple[int, Array]:
    """A heap upside down: the inner nodes name those before them in pairs."""
    return nodes + 1, np.arange(2 * nodes).reshape(nodes, 2)


@pytest.mark.parametrize("shape", [chain, caterpillar, balanced])
@pytest.mark.parametrize("rules", [BINARY, GRAPH])
def test_large_forests_take_linear_time(shape, rules: ForestRules) -> None:  # type: ignore[no-untyped-def]  # of each shape
    def seconds(nodes: int) -> float:
        starts, children = shape(nodes)
        began = time.process_time()
        forest = compile_forest(rules, starts, children)
        assert len(forest.roots) == 1
        assert forest.depth.min() == 0
        return time.process_time() - began

    small = min(seconds(50_000) for _ in range(2))
    assert seconds(500_000) < 40 * small + 0.5  # ten times as many; quadratic time would be a hundred
