"""The laws of trees: whatever befalls requests, each answer is that of recursion, and nothing is computed in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.batching.policy import BatchingOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    OutOfMemory,
    Overloaded,
    ServingError,
    ShuttingDown,
)
from app.core.events import BatchExecuted, CallRepeated
from app.core.inference import Array, InferenceRequest, InferenceResponse, TensorSpec
from app.pipelines.folding import Fold
from app.placement import RequestPlacement
from tests.pipelines.fold.fold_cores import each_core  # noqa: F401 - pytest finds it
from tests.pipelines.pipeline_world import FLOAT32, World
from tests.pipelines.tree_world import INT32, WIDTH
from tests.support.fakes import run_in_fake_time

STATE = TensorSpec("state", FLOAT32, (None, WIDTH))
WORD = TensorSpec("word", FLOAT32, (None,))

#: Two types of nodes, the second of which has one child; nodes may be shared.
GRAPH = b"""
steps:
  leaves: {model: embed, inputs: {token: tokens}}
  nodes:
    inputs: {word: words}
    fold:
      children: children
      types: types
      shared: true
      start: leaves.state
      operations:
        - {model: cell, slots: [left, right], state: state}
        - {model: turn, slots: [only], state: turned}
  scores: {model: head, inputs: {state: nodes.root}}
outputs: {scores: scores.scores, root: nodes.root}
"""

#: Trees of one type, whose leaves are inputs; all states are told.
TREE = b"""
steps:
  nodes:
    model: cell
    inputs: {word: words}
    fold: {children: children, slots: [left, right], start: start, state: state}
outputs: {root: nodes.root, states: nodes.state}
"""

#: Without leaves.
CHAIN = b"""
steps:
  nodes: {model: turn, inputs: {word: words}, fold: {slots: [only], state: turned}}
outputs: {root: nodes.root, states: nodes.turned}
"""

PIPELINES = {"graph": GRAPH, "tree": TREE, "chain": CHAIN}


def embed(inputs: Mapping[str, Array]) -> dict[str, Array]:
    token = inputs["token"].astype(np.float32)
    return {"state": np.stack([token, -token, token / 2], 1)}


def cell(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"state": np.sin(inputs["word"])[:, None] + inputs["left"] / 2 - inputs["right"] / 4}


def turn(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"turned": np.cos(inputs["word"])[:, None] - inputs["only"][:, ::-1] / 2}


def head(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"scores": inputs["state"].sum(1)}


# --- requests ---


@dataclass(frozen=True)
class Call:
    """One client: when it calls, what, and what befalls it.

    leaves_with: it is cancelled as a call of this number ends; 0 for none.
    """

    at_s: float
    pipeline: str
    seed: int
    nodes: int
    timeout_s: float
    cancel_after_s: float
    leaves_with: int
    bad: type[ServingError] | None
    priority: int
    caller: str


calls = st.lists(
    st.builds(
        Call,
        at_s=st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 4.0]),
        pipeline=st.sampled_from([*sorted(PIPELINES), "direct"]),
        seed=st.integers(0, 1000),
        nodes=st.sampled_from([0, 1, 2, 3, 5, 9, 25]),
        timeout_s=st.sampled_from([inf, inf, inf, 0.7, 3.0, 6.5]),
        cancel_after_s=st.sampled_from([inf, inf, inf, 0.0, 0.3, 1.2, 3.5]),
        leaves_with=st.sampled_from([0, 0, 0, 0, 1, 2, 3, 5]),
        bad=st.sampled_from([None, None, None, InvalidRequest, OutOfMemory, InferenceFailed]),
        priority=st.sampled_from([0, 0, 1, 9, -1]),
        caller=st.sampled_from(["", "a", "b"]),
    ),
    min_size=1,
    max_size=8,
)


@dataclass(frozen=True)
class Surroundings:
    """What requests meet."""

    devices: int
    max_rows: int
    preserve_order: bool
    fair_callers: bool
    weights: Mapping[str, float]
    max_inline_s: float
    batching: BatchingOptions


worlds = st.builds(
    Surroundings,
    devices=st.integers(1, 3),
    max_rows=st.sampled_from([1000, 1000, 6]),
    preserve_order=st.booleans(),
    fair_callers=st.booleans(),
    weights=st.sampled_from([{}, {"cell": 3.0}]),
    max_inline_s=st.sampled_from([0.0, 2.0]),
    batching=st.sampled_from(
        [
            BatchingOptions(),
            BatchingOptions(),
            BatchingOptions(max_batch_size=3),
            BatchingOptions(max_batch_delay_ms=400),
        ]
    ),
)


def request_of(call: Call, first_word: int) -> dict[str, Array]:
    """Random trees; each word is a node's own."""
    random = Random(call.seed)  # noqa: S311 - the same trees each time
    words = np.arange(first_word, first_word + call.nodes, dtype=np.float32)
    if call.pipeline == "direct":
        states = [np.array([random.random() for _ in range(WIDTH * call.nodes)], np.float32) for _ in range(2)]
        return {"word": words, "left": states[0].reshape(-1, WIDTH), "right": states[1].reshape(-1, WIDTH)}
    if call.pipeline == "chain":
        return {"words": words}
    starts = random.randrange(4)
    types = [random.randrange(2) if call.pipeline == "graph" else 0 for _ in range(call.nodes)]
    children = _children(random, starts, types, shared=call.pipeline == "graph")
    tokens = np.array([random.randrange(9) for _ in range(starts)], np.int32)
    own = {"words": words, "children": np.array(children, np.int32).reshape(-1, 2)}
    if call.pipeline == "graph":
        return {**own, "tokens": tokens, "types": np.array(types, np.int32)}
    return {**own, "start": embed({"token": tokens})["state"]}


def _children(random: Random, starts: int, types: Sequence[int], *, shared: bool) -> list[list[int]]:
    """Of each inner node those that come before it in a random order; bushy or deep, or trees of their own."""
    inner = len(types)
    order, deep = random.sample(range(starts, starts + inner), inner), random.random()
    known, children = list(range(starts)), {}
    for node in order:
        own = [-1, -1]
        for slot in range(1 if types[node - starts] else 2):
            if known and random.random() < 0.8:
                at = len(known) - 1 if random.random() < deep else random.randrange(len(known))
                own[slot] = known[at] if shared else known.pop(at)
        children[node] = own
        known.append(node)
    return [children[node] for node in range(starts, starts + inner)]


def expected(call: Call, request: Mapping[str, Array]) -> dict[str, Array]:
    """One node at a time, from its children up."""
    if call.pipeline == "direct":
        return cell(request)
    words = request["words"]
    if call.pipeline == "chain":
        start, types = np.zeros((0, WIDTH), np.float32), np.ones(len(words), int)
        children = np.arange(-1, len(words) - 1).reshape(-1, 1)
    else:
        start = request["start"] if call.pipeline == "tree" else embed({"token": request["tokens"]})["state"]
        types, children = request.get("types", np.zeros(len(words), int)), request["children"]
    known: dict[int, Array] = {-1: np.zeros((1, WIDTH), np.float32)}
    known |= {node: start[node : node + 1] for node in range(len(start))}

    def state(node: int) -> Array:
        if node not in known:
            at = node - len(start)
            word, own = words[at : at + 1], children[at].tolist()
            if types[at]:
                known[node] = turn({"word": word, "only": state(own[0])})["turned"]
            else:
                known[node] = cell({"word": word, "left": state(own[0]), "right": state(own[1])})["state"]
        return known[node]

    states = [state(node) for node in range(len(start), len(start) + len(words))]
    roots = np.concatenate([state(node) for node in range(len(known) - 1) if node not in children])
    if call.pipeline == "graph":
        return {"root": roots, **head({"state": roots})}
    return {"root": roots, "states": np.concatenate(states) if states else np.zeros((0, WIDTH), np.float32)}


# --- the world ---


class Trees(World):
    """Notes which words were computed, and when; of each word that is bad, how it fails."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.began_s: dict[float, list[float]] = {}
        self.answered: dict[float, int] = {}
        self.bad: dict[float, type[ServingError]] = {}
        self.folds: list[Fold] = []
        self.add_all(1)
        for name, text in PIPELINES.items():
            self.load(text, name)
        self.note_folds()

    def add_all(self, version: int) -> None:
        self.add("embed", version, embed, {"state": STATE}, {"token": TensorSpec("token", INT32, (None,))})
        self.add("cell", version, self.noted(cell), {"state": STATE}, {"word": WORD, "left": STATE, "right": STATE})
        self.add("turn", version, self.noted(turn), {"turned": STATE}, {"word": WORD, "only": STATE})
        self.add("head", version, head, {"scores": TensorSpec("", FLOAT32, (None,))}, {"state": STATE})

    def noted(self, body: Callable[[Mapping[str, Array]], dict[str, Array]]) -> Any:
        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            words = set(inputs["word"].tolist())
            for word in words:
                self.began_s.setdefault(word, []).append(self.loop.time())
            for word in sorted(words & self.bad.keys()):
                raise self.bad[word](f"word {word} is bad")
            for word in words:
                self.answered[word] = self.answered.get(word, 0) + 1
            return body(inputs)

        return run

    def note_folds(self) -> None:
        for model in self.served.values():
            if model.bound_to is not None:
                self.folds += [each for each in model.bound_to.folds.values() if each not in self.folds]


class Client:
    def __init__(self, number: int, call: Call) -> None:
        self.call = call
        self.first_word = 100 * number
        self.inputs = request_of(call, self.first_word)
        self.answer: InferenceResponse | ServingError | None = None
        self.cancelled_s = self.done_s = inf

    @property
    def words(self) -> Sequence[float]:
        return [float(word) for word in range(self.first_word, self.first_word + self.call.nodes)]

    @property
    def bad_word(self) -> float | None:
        return self.words[self.call.seed % self.call.nodes] if self.call.bad and self.call.nodes else None

    async def play(self, world: Trees, start_s: float) -> None:
        call, loop = self.call, world.loop
        await asyncio.sleep(start_s + call.at_s - loop.time())
        model = world.find("cell") if call.pipeline == "direct" else world.served[call.pipeline]
        request = InferenceRequest(
            dict(self.inputs), deadline_s=loop.time() + call.timeout_s, priority=call.priority, caller=call.caller
        )
        task = asyncio.create_task(model.infer(request))
        world.at_end_of(call.leaves_with, lambda: self._leave(task, loop.time()))
        if call.cancel_after_s < inf:
            _, pending = await asyncio.wait({task}, timeout=call.cancel_after_s)
            if pending:
                self._leave(task, loop.time())
        try:
            self.answer = await task
        except ServingError as error:
            self.answer = error
        except asyncio.CancelledError:
            pass
        self.done_s = loop.time()

    def _leave(self, task: asyncio.Task[InferenceResponse], now: float) -> None:
        if task.cancel():
            self.cancelled_s = now


async def swap(world: Trees, at_s: float) -> None:
    """Others take the place of all versions: the bindings are retired, and their models end with the last request."""
    if at_s < inf:
        await asyncio.sleep(at_s)
        old = [versions[1] for name, versions in world.models.items() if name in {"embed", "cell", "turn", "head"}]
        world.add_all(2)
        world.pipelines.refresh()
        world.note_folds()
        for model in old:
            del world.models[model.name][1]
        await asyncio.gather(*[model.close() for model in old])


async def place_anew(world: Trees, at_s: float) -> None:
    """The cell takes fewer rows, in lanes of their own."""
    if at_s < inf:
        await asyncio.sleep(at_s)
        (version,) = world.models["cell"]
        model, loaded = world.models["cell"][version], world.loaded["cell", version]
        model.adopt(RequestPlacement("cell", version, loaded, BatchSizes((1, 2))))


async def drain(world: Trees, at_s: float) -> None:
    if at_s < inf:
        await asyncio.sleep(at_s)
        world.batcher.begin_drain()


times = st.sampled_from([inf, inf, 0.3, 1.7, 3.1])


@given(calls, worlds, times, times, times)
def test_each_tree_is_what_recursion_says_whatever_befalls_others(
    schedule: list[Call], surroundings: Surroundings, drain_s: float, swap_s: float, place_s: float
) -> None:
    async def main() -> None:
        # 1. Clients, other versions and placements of their models, and a drain.
        world = Trees(**vars(surroundings))
        clients = [Client(number + 1, call) for number, call in enumerate(schedule)]
        world.bad = {client.bad_word: client.call.bad for client in clients if client.bad_word and client.call.bad}
        start_s = world.loop.time()
        playing = [client.play(world, start_s) for client in clients]
        await asyncio.gather(*playing, swap(world, swap_s), place_anew(world, place_s), drain(world, drain_s))

        # 2. What each got.
        await world.end()
        for client in clients:
            check(client, world, start_s, drain_s, may_be_full=surroundings.max_rows < 1000)

        # 3. Nothing is left: every model can be closed.
        tried = [each for each in world.events if isinstance(each, CallRepeated) and each.accepted]
        assert all(each.why == "search" for each in tried), "a request was computed twice"  # a search repeats one row
        again = sum([count - 1 for count in world.answered.values()])
        assert again <= len(tried), "a node was computed twice"
        calls = [each for each in world.events if isinstance(each, BatchExecuted) and each.model in {"cell", "turn"}]
        computed = sum([call.rows - call.failed_rows for call in calls])
        assert computed + len(tried) == sum(world.answered.values()), "a call was not told once"
        assert all(fold.idle for fold in world.folds), world.folds
        assert not world.batcher.failures(10)
        versions = [version for versions in world.models.values() for version in versions.values()]
        await asyncio.gather(*[model.close() for model in (*world.served.values(), *versions)])

    run_in_fake_time(main())


def check(client: Client, world: Trees, start_s: float, drain_s: float, *, may_be_full: bool) -> None:
    call, answer = client.call, client.answer
    over_s = min(client.done_s, client.cancelled_s)
    for word in client.words:
        began_s = world.began_s.get(word, [])
        again = began_s[1:] if not world.bad else []  # a call that was rejected is made again, as a whole
        assert all(each <= over_s for each in began_s[:1] + again), "it was computed in vain"
    if isinstance(answer, InferenceResponse):
        assert client.bad_word is None
        assert all(world.answered[word] for word in client.words)
        wanted = expected(call, client.inputs)
        assert answer.outputs.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_allclose(answer.outputs[name], array, rtol=1e-6, atol=1e-6)
    elif isinstance(answer, ServingError):
        check_error(client, answer, world, start_s, drain_s, may_be_full=may_be_full)
    else:
        assert client.cancelled_s < inf


def check_error(
    client: Client, answer: ServingError, world: Trees, start_s: float, drain_s: float, *, may_be_full: bool
) -> None:
    """Nobody is told of what others did, unless the model failed."""
    call = client.call
    if isinstance(answer, DeadlineExceeded):
        assert client.done_s >= start_s + call.at_s + call.timeout_s - 1e-6
    elif isinstance(answer, ShuttingDown):
        assert call.at_s >= drain_s
    elif isinstance(answer, Overloaded):
        assert may_be_full or call.timeout_s < inf, answer
    elif isinstance(answer, InvalidRequest):
        no_node = "expected at least one node" in str(answer)
        assert (call.bad is InvalidRequest and call.nodes) or (no_node and not call.nodes), answer
    elif isinstance(answer, OutOfMemory):
        assert call.bad is OutOfMemory
    else:
        assert isinstance(answer, InferenceFailed), answer
        assert InferenceFailed in world.bad.values(), answer
