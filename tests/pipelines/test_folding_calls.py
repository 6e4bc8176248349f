"""A fold and its models, call by call: what becomes of its nodes if a call cannot be begun, or a reply has effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import numpy as np
import pytest

from app.batching.priority import BULK, priority_offset_s
from app.batching.request import LaneKey, LaterSteps, PendingRequest, RequestHandle
from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory, RequestTooLarge, ServingError
from app.core.inference import Array, BatchTiming, InferenceRequest, ModelSignature, TensorSpec
from app.core.reply import Answer, Reply
from app.pipelines.compilation import compile_pipeline
from app.pipelines.document import parse
from app.pipelines.fold.forest import ForestRules, compile_forest
from app.pipelines.fold.forests import ForestInputs, chain
from app.pipelines.fold_request import FoldRequest
from app.pipelines.folding import Fold, FoldLimits
from app.pipelines.plan import FoldPlan
from tests.pipelines.fold.fold_cores import each_core  # noqa: F401 - pytest finds it
from tests.support.fakes import FakeReply

FLOAT32 = np.dtype(np.float32)
WORD, STATE = TensorSpec("word", FLOAT32, (None,)), TensorSpec("state", FLOAT32, (None, 1))
CELL = ModelSignature("serving_default", {"word": WORD, "left": STATE, "right": STATE}, {"state": STATE})

TREES = b"""
steps:
  nodes: {model: cell, inputs: {word: words}, fold: {children: children, slots: [left, right], state: state}}
outputs: {root: nodes.root}
"""


class StepModel:
    """Keeps what is submitted until the test answers it, and rejects what it is told to."""

    def __init__(self, largest: int = 8) -> None:
        self.sizes = BatchSizes.powers_of_two(largest)
        self.rows = largest
        self.apart: float = inf
        self.rejections: dict[float, Exception] = {}
        self.calls: list[tuple[list[float], PendingRequest, int]] = []

    def call_rows(self, signature: str) -> int:
        return self.rows

    def lone_rows(self, signature: str, inputs: Mapping[str, Array]) -> Array | None:
        odd: Array = inputs["word"] == self.apart
        return odd if odd.any() else None

    def compute_supplied(self, request: InferenceRequest) -> Answer | None:
        return None

    def submit_step(
        self,
        request: InferenceRequest,
        reply: Reply,
        arrival_s: float,
        later: LaterSteps | None = None,
    ) -> RequestHandle:
        words = request.inputs["word"].tolist()
        for word in words:
            if word in self.rejections:
                raise self.rejections[word]
        pending = PendingRequest(request.inputs, len(words), reply, arrival_s)
        pending.lane = LaneKey("cell", 1, request.signature)
        self.calls.append((words, pending, request.priority))
        return RequestHandle(pending, self.remove)

    def remove(self, pending: PendingRequest) -> bool:
        waited, pending.lane = pending.lane is not None, None
        self.calls = [call for call in self.calls if call[1] is not pending]
        return waited

    @property
    def words(self) -> list[list[float]]:
        return [sorted(words) for words, _, _ in self.calls]

    def answer(self, elsewhere: int = 0) -> None:
        """Answers the first call: a node's state is its word and those of its children. It had so many more rows."""
        words, pending, _ = self.calls.pop(0)
        pending.lane = None
        inputs = pending.inputs
        state = inputs["word"][:, None] + inputs["left"] + inputs["right"]
        pending.answer(Answer({"state": state}, BatchTiming(0.0, 1.0, len(words) + elsewhere)))

    def fail(self, error: ServingError) -> None:
        _, pending, _ = self.calls.pop(0)
        pending.lane = None
        pending.fail(error)


class Then(FakeReply):
    """Does something when it is answered."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.then = then

    def set_result(self, result: object, /) -> None:
        super().set_result(result)
        self.then()

    def set_exception(self, exception: BaseException, /) -> None:
        super().set_exception(exception)
        self.then()


class Bench:
    def __init__(self, largest: int = 8) -> None:
        self.model = StepModel(largest)
        self.free: list[Callable[[], None]] = []
        plan = compile_pipeline(parse(TREES), lambda _: {CELL.name: CELL}).steps[0].fold
        assert plan is not None
        self.now = 0.0
        self.fold = Fold(plan, [self.model], self.free.append, FoldLimits(100, 1 << 20), lambda: self.now)

    def begin(
        self, *words: float, children: list[list[int]] | None = None, reply: FakeReply | None = None,
        arrival_s: float = 0.0, priority: int = 0,
    ) -> FoldRequest:  # fmt: skip
        """A request with a node for each word; without children each of them is a tree."""
        own = np.array(children or [[-1, -1]] * len(words), np.int32)
        (request,) = self.fold.reserve([ForestInputs(0, len(words), own, None)], [arrival_s])
        assert isinstance(request, FoldRequest)
        pending = PendingRequest({}, len(words), reply or FakeReply(), arrival_s, inf, priority_offset_s(priority))
        request.begin({}, {"input word": np.array(words, np.float32)}, pending, arrival_s, priority)
        return request

    def supply(self) -> None:
        """A device is free."""
        waiting, self.free[:] = [*self.free], []
        for each in waiting:
            each()


def outcomes(*replies: FakeReply) -> list[object]:
    return [reply.answers[0].outputs["root"].ravel().tolist() if isinstance(reply.answers[0], Answer)
            else type(reply.answers[0]) for reply in replies]  # fmt: skip


def test_the_calls_of_a_deep_tree_stand_behind_what_came_meanwhile() -> None:
    """By the seconds that were computed alone it would stay before all of that: most time passes between its calls."""
    bench = Bench()
    bench.now = 7.0  # it takes long to check a large tree
    bench.begin(1.0, 2.0, 3.0, children=[[-1, -1], [0, -1], [1, -1]])
    places = []
    for _ in range(3):
        bench.supply()
        ((_, pending, _),) = bench.model.calls
        places.append(pending.arrival_s)
        bench.now += 50.0
        bench.model.answer()
    assert places == [0.0, 57.0, 107.0]


@pytest.mark.parametrize("elsewhere", [0, 2], ids=["alone", "beside rows of others"])
@pytest.mark.parametrize("trees", [1, 3])
def test_the_calls_of_many_deep_trees_stand_behind_what_came_meanwhile_too(trees: int, elsewhere: int) -> None:
    """By its share alone each would stay before what came after 100 s for 200 s more."""
    bench = Bench()
    for _ in range(trees):
        bench.begin(1.0, 2.0, 3.0, children=[[-1, -1], [0, -1], [1, -1]])
    for came_s in (0.0, 49.9, 99.9):
        bench.supply()
        ((_, pending, _),) = bench.model.calls
        assert came_s <= pending.arrival_s <= bench.now
        bench.now += 50.0
        bench.model.answer(elsewhere)


@pytest.mark.parametrize("error", [InvalidRequest("no"), OutOfMemory("no"), MemoryError(), ValueError("a bug")])
def test_a_call_that_cannot_be_begun_fails_its_requests_and_leaves_nothing(error: Exception) -> None:
    bench, replies = Bench(), [FakeReply() for _ in range(4)]
    bench.model.rejections = {3.0: error}
    for word, reply in enumerate(replies):
        bench.begin(float(word), reply=reply)
    bench.supply()
    while bench.model.calls:
        bench.model.answer()
    if isinstance(error, ValueError):  # nobody knows whose fault it is
        assert outcomes(*replies) == [InferenceFailed] * 4
    else:
        told = InvalidRequest if isinstance(error, InvalidRequest) else OutOfMemory
        assert outcomes(*replies) == [[0.0], [1.0], [2.0], told]
    assert bench.fold.idle


def test_a_reply_that_cancels_a_request_of_the_other_half() -> None:
    """The first half is rejected as it is submitted; its reply ends a request of the second, which was not yet."""
    for bad in range(4):  # one of them is in the half that is submitted first
        bench, requests = Bench(), list[FoldRequest]()
        bench.model.rejections = {float(bad): InvalidRequest("no")}
        reply = Then(lambda requests=requests: [each.cancel() for each in requests])  # type: ignore[misc]  # a default of a lambda
        for word in range(4):
            requests.append(bench.begin(float(word), reply=reply if word == bad else None))
        bench.supply()
        assert outcomes(reply) == [InvalidRequest]
        assert not bench.model.calls
        assert bench.fold.idle


def test_a_reply_that_cancels_and_begins_others_when_it_is_answered() -> None:
    bench, later = Bench(), FakeReply()

    def change() -> None:
        other.cancel()
        bench.begin(5.0, 6.0, children=[[-1, -1], [0, -1]], reply=later)

    first, gone = Then(change), FakeReply()
    other = bench.begin(2.0, reply=gone)
    bench.begin(1.0, reply=first)  # of those that are complete together it is answered first
    bench.supply()
    bench.model.answer()
    while bench.free:
        bench.supply()
        bench.model.answer()
    assert outcomes(first, later) == [[1.0], [11.0]]
    assert not gone.answers
    assert bench.fold.idle


def test_a_broken_reply_harms_no_other_request() -> None:
    def broken() -> None:
        raise RuntimeError

    for answered in (True, False):
        bench, replies = Bench(), [FakeReply(), Then(broken), FakeReply()]
        for reply in replies:
            bench.begin(1.0, reply=reply)
        bench.supply()
        if answered:
            bench.model.answer()
        else:
            bench.model.fail(InferenceFailed("no"))
        assert outcomes(replies[0], replies[2]) == [[1.0] if answered else InferenceFailed] * 2
        assert bench.fold.idle


def test_a_call_of_nobody_is_given_up_wherever_it_is() -> None:
    """It is being computed, or isolated. Its rows are free, its answer is dropped, and its number is another one's."""
    bench = Bench()
    request = bench.begin(1.0, 2.0)
    bench.supply()
    _, pending, _ = bench.model.calls.pop(0)
    pending.lane = None  # a batch has it
    request.cancel()
    assert bench.fold.idle
    assert pending.reply.done(), "so that an isolation leaves it out, and answers in order do not wait for it"
    reply = FakeReply()
    bench.begin(7.0, reply=reply)
    pending.answer(Answer({"state": np.full((2, 1), 9, np.float32)}, BatchTiming()))
    bench.supply()
    bench.model.answer()
    assert outcomes(reply) == [[7.0]]


@pytest.mark.parametrize("error", [InvalidRequest("no"), OutOfMemory("no")])
def test_nobody_is_blamed_for_a_request_that_has_ended_meanwhile(error: ServingError) -> None:
    """What is left of a rejected call is another call."""
    bench, reply = Bench(), FakeReply()
    bad = bench.begin(1.0)
    bench.begin(2.0, reply=reply)
    bench.supply()
    bench.model.calls[0][1].lane = None  # a batch has it
    bad.cancel()
    bench.model.fail(error)
    bench.model.answer()
    assert outcomes(reply) == [[2.0]]
    assert bench.fold.idle


def test_a_call_that_is_computed_in_part_keeps_its_nodes() -> None:
    """A part of it is in a batch: to take the rest out would compute that part twice."""
    bench, reply = Bench(), FakeReply()
    gone = bench.begin(1.0)
    bench.begin(2.0, reply=reply)
    bench.supply()
    bench.model.calls[0][1].parts = object()  # type: ignore[assignment]  # any
    gone.cancel()
    assert bench.model.words == [[1.0, 2.0]]
    bench.model.answer()
    assert outcomes(reply) == [[2.0]]
    assert bench.fold.idle


def test_those_that_begin_before_a_device_is_free_are_written_together() -> None:
    bench, replies = Bench(), [FakeReply() for _ in range(3)]
    for number, reply in enumerate(replies):
        bench.begin(float(number), 10.0, children=[[-1, -1], [0, -1]], reply=reply)
    bench.begin(99.0).cancel()  # it is not written, nor computed
    bench.supply()
    assert bench.model.words == [[0.0, 1.0, 2.0]]
    while bench.model.calls:
        bench.model.answer()
        bench.supply()
    assert outcomes(*replies) == [[10.0], [11.0], [12.0]]
    assert bench.fold.idle


def test_those_for_whose_words_there_is_no_memory_fail_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, replies = Bench(), [FakeReply() for _ in range(3)]

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        for reply in replies[:2]:
            bench.begin(1.0, reply=reply)
        patched.setattr(bench.fold._arena.__class__, "scatter", full)
        bench.supply()
    bench.begin(2.0, reply=replies[2])
    bench.supply()
    bench.model.answer()
    assert outcomes(*replies) == [OutOfMemory, OutOfMemory, [2.0]]
    assert bench.fold.idle


def test_a_request_that_never_begins_gives_its_room_back() -> None:
    bench = Bench()
    none = np.full((2, 2), -1, np.int32)
    first, second = bench.fold.reserve([ForestInputs(0, 2, none, None)] * 2, [0.0, 0.0])
    assert isinstance(first, FoldRequest)
    assert isinstance(second, FoldRequest)
    first.cancel()
    second.cancel()
    assert not bench.free, "nothing was ready"
    assert bench.fold.idle


def test_a_call_has_as_many_rows_as_the_model_takes_now() -> None:
    bench = Bench(largest=8)
    bench.begin(*range(8))
    bench.model.rows = 2
    bench.supply()
    assert [len(words) for words in bench.model.words] == [2]


def test_nodes_that_must_not_meet_others_are_calls_of_their_own() -> None:
    bench, replies = Bench(), [FakeReply(), FakeReply()]
    bench.model.apart = 5.0
    bench.begin(1.0, 5.0, 2.0, reply=replies[0])
    bench.begin(5.0, reply=replies[1])
    bench.supply()
    assert sorted(bench.model.words) == [[1.0, 2.0], [5.0], [5.0]]
    while bench.model.calls:
        bench.model.answer()
    assert outcomes(*replies) == [[1.0, 5.0, 2.0], [5.0]]


def test_a_call_stands_where_the_first_of_its_requests_does() -> None:
    """Not at the arrival of one and the priority of another: bulk requests lend nobody their age."""
    bench = Bench()
    bench.begin(1.0, arrival_s=0.0, priority=BULK)
    bench.begin(2.0, arrival_s=15.0, priority=0)
    bench.supply()
    ((_, pending, priority),) = bench.model.calls
    assert (pending.entered_s, priority) == (15.0, 0)


def test_a_chain_is_the_forest_that_it_would_be_compiled_to() -> None:
    for starts, nodes in ((0, 1), (0, 5), (1, 1), (1, 4)):
        rules = ForestRules(1, 100)
        found = chain(rules, starts, nodes, None)
        forest = compile_forest(rules, starts, np.arange(starts - 1, starts + nodes - 1).reshape(-1, 1))
        for name in ("children", "missing", "depth", "roots"):
            np.testing.assert_array_equal(getattr(found, name), getattr(forest, name))
        assert (found.starts, found.operations, found.shared) == (starts, None, None)
        with pytest.raises(RequestTooLarge, match="at most 100 nodes"):
            chain(rules, starts, 101, None)


@pytest.mark.parametrize(("slots", "nodes"), [(1, 1000), (2, 1000), (4, 500), (64, 31)])
def test_the_more_children_a_node_may_have_the_fewer_nodes_a_request_may_have(slots: int, nodes: int) -> None:
    arrays = {"state": ((1,), FLOAT32)}
    plan = FoldPlan(ForestRules(slots, 0, shared=True), (), arrays, None, None, {}, {}, {}, None, 0, 1)
    fold = Fold(plan, [StepModel()], list[Callable[[], None]]().append, FoldLimits(1000, 1 << 20), lambda: 0.0)
    none = np.zeros((0, slots), np.int32)
    taken, rejected = fold.reserve(
        [ForestInputs(nodes, 0, none, None), ForestInputs(nodes + 1, 0, none, None)], [0.0, 0.0]
    )
    assert isinstance(taken, FoldRequest)
    assert isinstance(rejected, RequestTooLarge)
    assert f"at most {nodes:,} nodes, got {nodes + 1:,}" in str(rejected)
