"""Runs forests with a numpy cell by the agenda and the arena, and computes them by plain recursion, for the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from app.core.inference import Array
from app.pipelines.fold.agenda import Agenda, TakenNodes
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.forest import Forest, ForestRules, compile_forest

WIDTH = 3
STATES = {"c": ((WIDTH,), np.dtype(np.float32)), "h": ((2, WIDTH), np.dtype(np.float32))}
ROWS = {**STATES, "word": ((), np.dtype(np.float32))}

States = dict[str, Array]


def cell(operation: int, word: Array, children: list[States]) -> States:
    """The states of k nodes: `word` is [k], each slot's states are [k, ...]. Slots and operations count differently."""
    c = np.zeros((len(word), WIDTH)) + word[:, None]
    h = np.zeros((len(word), 2, WIDTH)) - word[:, None, None]
    for slot, child in enumerate(children):
        c += (slot + 1) * 0.3 * child["c"] + 0.1 * child["h"].sum(axis=1)
        h += np.tanh(child["h"] + operation) / (slot + 1)
    return {"c": np.tanh(c - operation).astype(np.float32), "h": np.tanh(h).astype(np.float32)}


@dataclass(eq=False)
class Request:
    """A request's inputs, and what became of it."""

    forest: Forest
    start: States  # of start nodes
    word: Array  # [inner]
    rows: Array = field(default_factory=lambda: np.zeros(0, np.intp))
    answer: States | None = None  # of roots

    @property
    def operations(self) -> Array:
        operations = self.forest.operations
        return np.zeros(self.forest.inner, int) if operations is None else operations


def request(rules: ForestRules, starts: int, children: Array, types: Array | None, rng: np.random.Generator) -> Request:
    forest = compile_forest(rules, starts, children, types)
    start = {name: rng.normal(size=(starts, *shape)).astype(dtype) for name, (shape, dtype) in STATES.items()}
    return Request(forest, start, rng.normal(size=forest.inner).astype(np.float32))


def by_recursion(request: Request) -> States:
    """The states of the roots, one node at a time."""
    starts, known = request.forest.starts, dict[int, States]()
    zero = {name: np.zeros((1, *shape), dtype) for name, (shape, dtype) in STATES.items()}

    def state(node: int) -> States:
        if node < 0:
            return zero
        if node < starts:
            return {name: array[node : node + 1] for name, array in request.start.items()}
        if node not in known:
            inner = node - starts
            children = [state(child) for child in request.forest.children[inner].tolist()]
            known[node] = cell(request.operations[inner], request.word[inner : inner + 1], children)
        return known[node]

    roots = [state(root) for root in request.forest.roots.tolist()]
    return {name: np.concatenate([root[name] for root in roots]) for name in STATES}


class Driver:
    """Requests in flight, and the calls that were begun and are not over."""

    def __init__(self, slots: int, operations: int = 1, *, most_rows: int = 4, arena: Arena | None = None) -> None:
        self.operations = operations
        self.agenda = Agenda(slots, operations, most_rows=most_rows)
        self.arena = arena or Arena(ROWS, 10**6, 1 << 30)
        self.flying: dict[int, Request] = {}
        self.entered: list[int] = []  # of those in flight, those that have not begun
        self.cancelled: dict[int, Request] = {}
        self.calls: list[tuple[int, TakenNodes]] = []
        self.computed: list[tuple[int, int]] = []  # id of the request, and row, of each node whose state was written

    def add(self, *requests: Request) -> None:
        """Adds requests together, and begins them."""
        for number in self.enter(*requests):
            self.begin(number)

    def enter(self, *requests: Request) -> Sequence[int]:
        for request in requests:
            request.rows = self.arena.allocate(request.forest.nodes)
        numbers = self.agenda.add([request.forest for request in requests], [request.rows for request in requests])
        for number, request in zip(numbers, requests, strict=True):
            assert number not in self.flying
            assert number not in self.cancelled
            self.flying[number] = request
            self.entered.append(number)
        return numbers

    def begin(self, number: int) -> None:
        request = self.flying[number]
        starts = request.forest.starts
        self.arena.scatter(request.rows[:starts], request.start)
        self.arena.scatter(request.rows[starts:], {"word": request.word})
        self.agenda.begin(number)
        self.entered.remove(number)

    def cancel(self, number: int) -> None:
        request = self.flying.pop(number)
        if number in self.entered:
            self.entered.remove(number)
        if self.agenda.cancel(number):
            self.arena.free(request.rows)
        else:
            self.cancelled[number] = request

    def take(self, count: int, operation: int = 0) -> TakenNodes:
        taken = self.agenda.take(count, operation)
        assert set(taken.requests.tolist()) <= set(self.flying) - set(self.entered), "not begun, or cancelled"
        assert len(set(taken.rows.tolist())) == len(taken.rows) <= count
        if taken.rows.size:
            self.calls.append((operation, taken))
        return taken

    def compute(self, operation: int, taken: TakenNodes) -> None:
        """Computes a call, or a part of one, and gives its nodes back."""
        states = {name: self.arena.gather(name, taken.children) for name in STATES}
        children = [{name: array[slot] for name, array in states.items()} for slot in range(len(taken.children))]
        word = self.arena.gather("word", taken.rows)
        self.arena.scatter(taken.rows, cell(operation, word, children))
        for number, row in zip(taken.requests.tolist(), taken.rows.tolist(), strict=True):
            own = self.flying.get(number) or self.cancelled[number]
            self.computed.append((id(own), row))
        returned = self.agenda.done(taken.rows)
        for number in returned.complete:
            own = self.flying.pop(number)
            own.answer = {name: self.arena.gather(name, own.rows[own.forest.roots]) for name in STATES}
            self.arena.free(own.rows)
        self._gone(returned.gone)

    def put_back(self, taken: TakenNodes) -> None:
        returned = self.agenda.put_back(taken.rows)
        assert not returned.complete
        self._gone(returned.gone)

    def _gone(self, numbers: list[int]) -> None:
        for number in numbers:
            self.arena.free(self.cancelled.pop(number).rows)

    def run(self, count: int = 4, each: Callable[[], None] = lambda: None) -> int:
        """Takes and computes until all requests are complete. Returns how many calls it took."""
        calls = 0
        while self.flying or self.calls:
            each()
            for operation in range(self.operations):
                self.take(count, operation)
            assert self.calls, f"nothing is ready of {self.agenda}"
            while self.calls:
                self.compute(*self.calls.pop())
                calls += 1
        return calls


def part(taken: TakenNodes, where: slice) -> TakenNodes:
    return TakenNodes(taken.requests[where], taken.rows[where], taken.children[:, where])


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - the same trees each time


def random_tree(leaves: int, random: Random) -> Array:
    """Children [leaves - 1, 2] of a random binary tree over a sentence: neighbours are joined."""
    parts, children = list(range(leaves)), []
    for node in range(leaves, 2 * leaves - 1):
        at = random.randrange(len(parts) - 1)
        children.append(parts[at : at + 2])
        parts[at : at + 2] = [node]
    return np.array(children, np.int32).reshape(-1, 2)
