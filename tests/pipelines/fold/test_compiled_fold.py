"""fold.c does what numpy does, whatever requests do, and declines what is malformed before it writes anything."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from shutil import which

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import ServingError
from app.core.inference import Array
from app.pipelines.fold import compiled_fold
from app.pipelines.fold.agenda import Agenda
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.compiled_fold import CompiledFold
from app.pipelines.fold.forest import Forest, ForestRules
from app.pipelines.fold.forests import ForestInputs, has_form, joined
from tests.pipelines.fold.fold_cores import by_numpy
from tests.pipelines.fold.test_forests import compiled_or_error, spoilt
from tests.pipelines.fold.test_recursion import random_forest
from tests.support.missing import skip_loudly
from tests.support.waiting import HANG_S

BATCH = 8


@pytest.fixture(scope="module", autouse=True)
def each_core() -> None:
    """Both are tried here at once."""
    if compiled_fold.library() is None:
        skip_loudly("NO C COMPILER WHEN FERRY WAS INSTALLED: fold.c IS NOT TRIED")


def asked_at_random(random: Random, slots: int, types: int | None) -> ForestInputs:
    starts, children = random_forest(random, slots, shared=False)
    children = spoilt(random, starts, children)
    chosen = None
    if types is not None:
        chosen = np.array([random.randrange(types + (random.random() < 0.02)) for _ in children], np.int32)
    return ForestInputs(starts, len(children), children, chosen)


class Both:
    """An agenda by fold.c, one by numpy, and whether they are alike."""

    def __init__(self, slots: int, operations: int, allowed: Sequence[int]) -> None:
        self.rules, self.allowed, self.operations = ForestRules(slots, 40, operations), allowed, operations
        self.arena = Arena({"x": ((), np.dtype(np.int8))}, 10**6, 1 << 30)
        self.compiled = Agenda(slots, operations, most_rows=BATCH)
        with by_numpy():
            self.numpy = Agenda(slots, operations, most_rows=BATCH)
        assert self.compiled._compiled is not None
        assert self.numpy._compiled is None
        self.rows: dict[int, Array] = {}
        self.waiting: list[int] = []
        self.calls: list[Array] = []

    def enter(self, asked: Sequence[ForestInputs]) -> None:
        forests = [compiled_or_error(self.rules, self.allowed, each) for each in asked]
        assert all(has_form(self.rules, each) for each in asked)
        sizes = [(each.starts, each.inner) for each in asked]
        rows = self.arena.allocate(sum(map(sum, sizes)))
        entered = self.compiled.enter(sizes, *joined(asked), np.array(self.allowed), rows)
        if any(isinstance(each, ServingError) for each in forests):
            assert entered is None
            self.arena.free(rows)
            return
        assert entered is not None
        good = [each for each in forests if isinstance(each, Forest)]
        own = np.split(rows, np.cumsum([forest.nodes for forest in good])[:-1])
        numbers = [self.numpy.add(forest, of_nodes) for forest, of_nodes in zip(good, own, strict=True)]
        assert [told.number for told in entered] == numbers
        for number, told, forest, of_nodes in zip(numbers, entered, good, own, strict=True):
            assert told.rows.tolist() == of_nodes.tolist()
            assert told.levels == forest.depth.max() + 1
            assert told.roots.tolist() == of_nodes[forest.roots].tolist()
            assert self.compiled._first[number].tolist() == self.numpy._first[number].tolist()
            self.rows[number] = of_nodes
        self.waiting += numbers

    def begin(self) -> None:
        number = self.waiting.pop()
        self.compiled.begin(number)
        self.numpy.begin(number)

    def take(self, operation: int, count: int) -> None:
        taken, other = self.compiled.take(count, operation), self.numpy.take(count, operation)
        order, other_order = taken.rows.argsort(), other.rows.argsort()
        np.testing.assert_array_equal(taken.rows[order], other.rows[other_order])
        np.testing.assert_array_equal(taken.requests[order], other.requests[other_order])
        np.testing.assert_array_equal(taken.children[:, order], other.children[:, other_order])
        if taken.rows.size:
            self.calls.append(taken.rows)

    def give_back(self, *, done: bool, nodes: int) -> None:
        call = self.calls.pop()
        rows, left = call[:nodes], call[nodes:]
        if left.size:
            self.calls.append(left)
        way = "done" if done else "put_back"
        found, other = getattr(self.compiled, way)(rows), getattr(self.numpy, way)(rows)
        assert (list(found.complete), list(found.gone)) == (list(other.complete), list(other.gone))
        for number in (*found.complete, *found.gone):
            self.arena.free(self.rows.pop(number))

    def cancel(self, number: int) -> None:
        free = self.compiled.cancel(number)
        assert free == self.numpy.cancel(number)
        if number in self.waiting:
            self.waiting.remove(number)
        if free:
            self.arena.free(self.rows.pop(number))

    def check(self) -> None:
        ours, theirs = self.compiled, self.numpy
        own = np.concatenate([np.empty(0, np.intp), *ours._own.values()])
        for name in ("_key", "_operation", "_missing", "_parent", "_children"):
            np.testing.assert_array_equal(getattr(ours, name)[own], getattr(theirs, name)[own], err_msg=name)
        np.testing.assert_array_equal(ours._left, theirs._left)
        assert ours._order.now == theirs._order.now
        times = [np.maximum(each._order.times, each._order.now) for each in (ours, theirs)]
        np.testing.assert_array_equal(*times)
        assert [ours.ready(each) for each in range(self.operations)] == [
            theirs.ready(each) for each in range(self.operations)
        ]


STEPS = ("enter", "begin", "begin", "take", "take", "take", "done", "done", "done", "put back", "cancel")


@settings(max_examples=150)
@given(
    random=st.randoms(use_true_random=True),
    slots=st.integers(1, 3),
    operations=st.integers(1, 3),
    steps=st.lists(st.sampled_from(STEPS), min_size=20, max_size=100),
)
def test_both_do_the_same(random: Random, slots: int, operations: int, steps: Sequence[str]) -> None:
    allowed = [random.randint(1, slots) if random.random() < 0.3 else slots for _ in range(operations)]
    both = Both(slots, operations, allowed)
    types = operations if operations > 1 or random.random() < 0.3 else None
    for step in ["enter", *steps]:
        if step == "enter":
            asked = [asked_at_random(random, slots, types) for _ in range(random.randint(1, 4))]
            both.enter(
                [each for each in asked if each.inner] or [ForestInputs(1, 1, np.zeros((1, slots), int) - 1, None)]
            )
        elif step == "begin" and both.waiting:
            both.begin()
        elif step == "take":
            both.take(random.randrange(operations), random.randint(0, BATCH))
        elif step in {"done", "put back"} and both.calls:
            both.give_back(done=step == "done", nodes=random.randint(1, BATCH))
        elif step == "cancel" and both.rows:
            both.cancel(random.choice(sorted(both.rows)))
        both.check()


def agenda(slots: int = 2) -> tuple[CompiledFold, dict[str, Array]]:
    """Ten rows, of two requests."""
    loaded = compiled_fold.library()
    assert loaded is not None
    compiled = CompiledFold(loaded, slots)
    arrays = {name: np.zeros(10, np.intp) for name in ("key", "operation", "missing", "parent")}
    arrays |= {"children": np.zeros((10, slots), np.intp), "left": np.zeros(2, np.intp)}
    compiled.point_to(**arrays)
    return compiled, arrays


@pytest.mark.parametrize("rows", [[1, 2, 10], [1, 2, -1], [0, 1, 2]])
def test_rows_of_no_node_are_declined(rows: list[int]) -> None:
    compiled, arrays = agenda()
    children, allowed = np.array([[0, 1]]), np.array([2])
    assert compiled.enter([(0, 2, 1)], children, None, allowed, np.array(rows)) is None
    with pytest.raises(IndexError, match="expected rows of nodes"):
        compiled.done(np.array(rows))
    assert not any(array.any() for array in arrays.values())
    assert compiled.enter([(0, 2, 1)], children, None, allowed, np.array([1, 2, 9])) is not None


@pytest.mark.parametrize("asked", [(-1, 2, 1), (2, 2, 1), (0, 3, 1), (0, 2, 2), (0, -1, 1), (0, 2, -1)])
def test_a_request_that_has_no_number_or_other_nodes_is_declined(asked: tuple[int, int, int]) -> None:
    compiled, _ = agenda()
    assert compiled.enter([asked], np.array([[0, 1]]), None, np.array([2]), np.array([1, 2, 3])) is None


def test_counts_near_the_largest_numbers_are_declined(tmp_path: Path) -> None:
    """By fold_counts.c, under sanitizers: there are 7 ways to fill three nodes, 3 to fill one, and two numbers."""
    compiler = which("cc") or which("gcc")
    if compiler is None:
        skip_loudly("NO C COMPILER: fold.c IS NOT TRIED WITH SANITIZERS")
    here, program = Path(__file__).parent, tmp_path / "fold_counts"
    watch = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    folder = compiled_fold.LIBRARY.parent
    subprocess.run([compiler, *watch, "-I", folder, here / "fold_counts.c", "-o", program], check=True, timeout=HANG_S)
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    ended = subprocess.run([program], check=False, capture_output=True, text=True, timeout=HANG_S, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == [str(2 * (7 + 3)), str(2 * 18**3 - 2 * (7 + 3))]


def test_a_chain_of_many_nodes_is_followed_without_recursion() -> None:
    nodes = 200_000
    compiled = Agenda(1, most_rows=BATCH)
    entered = compiled.enter([(0, nodes)], np.arange(-1, nodes - 1)[:, None], None, np.array([1]), np.arange(nodes) + 1)
    assert entered is not None
    (told,) = entered
    assert told.number is not None
    assert (told.levels, told.roots.tolist(), len(compiled._first[told.number])) == (nodes, [nodes], 1)
    backwards = np.arange(1, nodes + 1)[:, None]
    backwards[-1] = -1
    entered = compiled.enter([(0, nodes)], backwards, None, np.array([1]), np.arange(nodes) + 1)
    assert entered is not None
    assert entered[0].levels == nodes
    backwards[-1] = 0
    assert compiled.enter([(0, nodes)], backwards, None, np.array([1]), np.arange(nodes) + 1) is None
