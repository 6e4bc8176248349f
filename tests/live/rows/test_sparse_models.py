"""SparseTensors to real models over every kind of protocol: callers at once, and each gets its own rows."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import Array
from tests.every_protocol.drivers.driver import Driver, Question, Rejected
from tests.every_protocol.drivers.grpc_drivers import OpenInferenceRaw, TensorFlowContent
from tests.every_protocol.drivers.open_inference_rest import Binary, Json
from tests.every_protocol.drivers.tensorflow_rest import JsonColumns
from tests.every_protocol.live import Live, live
from tests.support.models.sparse_models import (
    INDEPENDENT,
    LOOKUPS,
    MIXING,
    UNSAFE_LOOKUPS,
    WIDTH,
    Function,
    called,
    drawn,
    save,
    spec,
)

PROTOCOLS: list[type[Driver]] = [JsonColumns, Json, Binary, TensorFlowContent, OpenInferenceRaw]

REAL: dict[str, Any] = {
    "runtime": "tensorflow",
    "warm_up": True,
    "ready_when": "tuned",  # all is proven before the first request, however slow the machine is
    "execution_variant": "plain",
    "batches_in_flight": 1,
    "max_batch_size": 8,
    "max_queue_size": 512,
    "strict_shapes": True,
}


def requests(count: int, dtype: Any = np.float32) -> list[dict[str, Array]]:
    random = np.random.default_rng(count)
    return [drawn(random, int(random.integers(1, 5)), dtype) for _ in range(count)]


async def ask(running: Live, sent: Sequence[Mapping[str, Array]]) -> list[Any]:
    """The answers to all, sent at once by all protocols in turn."""
    drivers = [drive(running) for drive in PROTOCOLS]
    questions = [Question(inputs=inputs, model="real") for inputs in sent]
    asked = [drivers[place % len(drivers)].ask(question) for place, question in enumerate(questions)]
    return await asyncio.gather(*asked, return_exceptions=True)


async def page(running: Live) -> Any:
    (signature,) = (await running.http.get("/v1/models/real/batching")).json()["versions"][0]["signatures"]
    return signature


def served(folder: Path, *batches: Sequence[Mapping[str, Array]], **more: Any) -> tuple[list[Any], Any]:
    """The answers to all batches, and what the batching page says of the signature."""

    async def main() -> tuple[list[Any], Any]:
        async with live(folder, **{**REAL, **more}) as running:
            answers = [each for batch in batches for each in await ask(running, batch)]
            return answers, await page(running)

    return asyncio.run(main())


def check_own_rows(function: Function, sent: Sequence[Mapping[str, Array]], answers: Sequence[Any]) -> None:
    for inputs, answer in zip(sent, answers, strict=True):
        assert isinstance(answer, dict), answer
        (rows,), want = answer.values(), called(function, inputs)
        assert len(rows) == len(want)
        if want.size:  # JSON says no inner shape of no rows
            np.testing.assert_allclose(rows, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("frontends", [0, 2], ids=["one process", "frontends"])
@pytest.mark.parametrize(
    ("function", "dtype", "proof"),
    [
        (INDEPENDENT["product"], tf.float32, "graph"),
        (INDEPENDENT["softmax"], tf.float32, "graph"),
        (LOOKUPS["safe_mean"], tf.int64, "graph"),
        (INDEPENDENT["no_rule_joined"], tf.float32, "probe"),
    ],
    ids=["product", "softmax", "safe_mean", "no_rule_joined"],
)
def test_each_caller_gets_its_own_rows_of_shared_calls(
    tmp_path: Path, function: Function, dtype: Any, proof: str, frontends: int
) -> None:
    save(tmp_path / "real" / "1", function, dtype)
    sent = requests(60, dtype.as_numpy_dtype)
    answers, told = served(tmp_path, sent, frontends=frontends)
    check_own_rows(function, sent, answers)
    assert (told["batched"], told["proof"], told["alone"]) == (True, proof, "")
    assert told["requests"] == len(sent) > 1.5 * told["calls"]
    assert told["shapes"]["explanation"].startswith("sparse: rows of any number of entries share calls")


def test_a_keras_model_of_a_sparse_input_shares_calls(tmp_path: Path) -> None:
    """It was saved for its signature alone, so that nothing but the names of its arguments tells what is sparse."""
    inner = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3, activation="softmax")]
    model = keras.Sequential([keras.layers.Input((WIDTH,), sparse=True), *inner])
    function = tf.function(lambda x: {"y": model(x)}, input_signature=[spec()], autograph=False)
    tf.saved_model.save(model, str(tmp_path / "real" / "1"), signatures={"serving_default": function})
    sent = requests(60)
    answers, told = served(tmp_path, sent)
    check_own_rows(model, sent, answers)
    assert (told["batched"], told["proof"]) == (True, "graph")
    assert told["requests"] == len(sent) > 1.5 * told["calls"]


@pytest.mark.parametrize(
    ("name", "dtype", "text"),
    [
        ("sum_of_rows", tf.float32, "SparseReduceSum 'SparseReduceSum' in '<lambda>' runs over all rows"),
        ("turned_round", tf.float32, "a row's answer depends on the other rows"),
        ("segments_with_entries", tf.float32, "it has no row for each row of the inputs"),
        ("unsafe_sum", tf.int64, "it has no row for each row of the inputs"),
        ("unsafe_mean", tf.int64, "it has no row for each row of the inputs"),
    ],
)
def test_models_whose_rows_see_each_other_answer_each_request_as_alone(
    tmp_path: Path, name: str, dtype: Any, text: str
) -> None:
    function = {**MIXING, **UNSAFE_LOOKUPS}[name]
    save(tmp_path / "real" / "1", function, dtype)
    sent = requests(40, dtype.as_numpy_dtype)
    answers, told = served(tmp_path, sent)
    check_own_rows(function, sent, answers)
    assert (told["batched"], told["calls"]) == (False, len(sent))
    assert text in told["alone"]


def test_a_request_that_does_not_fit_is_rejected_before_its_batch(tmp_path: Path) -> None:
    save(tmp_path / "real" / "1", INDEPENDENT["product"])
    good, other = requests(2)
    wrong = {**other, "x": other["x"] + [0, WIDTH]}
    assert len(wrong["x"])
    answers, _ = served(tmp_path, [good, wrong] * 10)
    check_own_rows(INDEPENDENT["product"], [good] * 10, answers[::2])
    for rejected in answers[1::2]:
        assert isinstance(rejected, Rejected)
        assert rejected.text == "Input 'x' has indices outside of the shape in 'x_2'"


def test_a_value_that_the_model_rejects_fails_its_own_request_alone(tmp_path: Path) -> None:
    save(tmp_path / "real" / "1", LOOKUPS["filled_sum"], tf.int64)
    sent = requests(30, np.int64)
    bad = {"x": np.array([[0, 0]]), "x_1": np.array([1000]), "x_2": np.array([1, WIDTH])}
    answers, told = served(tmp_path, [*sent[:7], bad, *sent[7:]])
    assert isinstance(answers.pop(7), Rejected)
    check_own_rows(LOOKUPS["filled_sum"], sent, answers)
    assert told["batched"]


def shuffled(inputs: Mapping[str, Array]) -> dict[str, Array]:
    order = np.random.default_rng(3).permutation(len(inputs["x"]))[::-1]
    return {**inputs, "x": inputs["x"][order], "x_1": inputs["x_1"][order]}


@pytest.mark.parametrize(
    ("other", "function"),
    [
        (shuffled, INDEPENDENT["product"]),
        (lambda inputs: {**inputs, "x_2": inputs["x_2"] * [0, 1], "x": inputs["x"][:0], "x_1": inputs["x_1"][:0]},
         INDEPENDENT["dense"]),
        (lambda inputs: {**inputs, "x_2": inputs["x_2"] + [0, 3]}, INDEPENDENT["dense"]),
        (lambda inputs: {**inputs, "x_2": inputs["x_2"] * [10000, 1]}, INDEPENDENT["sum"]),
    ],
    ids=["entries in any order", "no rows", "another width", "very many rows"],
)  # fmt: skip
def test_other_sparse_tensors_are_answered_as_alone(
    tmp_path: Path, other: Callable[[Mapping[str, Array]], dict[str, Array]], function: Function
) -> None:
    save(tmp_path / "real" / "1", function)
    plain = requests(10)
    sent = [each for inputs in plain for each in (inputs, other(inputs))]
    answers, _ = served(tmp_path, sent)
    check_own_rows(function, sent, answers)


def test_only_requests_of_equal_widths_share_calls(tmp_path: Path) -> None:
    save(tmp_path / "real" / "1", INDEPENDENT["dense"], width=None)
    random = np.random.default_rng(8)
    sent = [drawn(random, 2, width=width) for width in [3, 5, 900] * 8]
    answers, told = served(tmp_path, sent)
    check_own_rows(INDEPENDENT["dense"], sent, answers)
    assert 3 <= told["calls"] < len(sent)


def test_a_large_request_is_computed_in_parts(tmp_path: Path) -> None:
    save(tmp_path / "real" / "1", INDEPENDENT["product"])
    sent = [drawn(np.random.default_rng(4), 61)]
    answers, told = served(tmp_path, sent)
    check_own_rows(INDEPENDENT["product"], sent, answers)
    assert told["calls"] == 8


def test_what_the_probe_could_not_say_is_proven_by_requests(tmp_path: Path) -> None:
    """No rule is there for its graph, and its rows are too wide for the probe."""

    def function(x: Any) -> Any:
        return tf.sparse.reduce_sum(tf.sparse.concat(1, [x, x]), 1)

    width = 2**20
    save(tmp_path / "real" / "1", function, width=width)
    random = np.random.default_rng(6)

    def request() -> dict[str, Array]:
        columns = np.sort(random.choice(width, 1 + random.integers(4), replace=False))
        indices = np.stack([0 * columns, columns], 1)
        return {"x": indices, "x_1": random.random(len(columns), np.float32), "x_2": np.array([1, width])}

    async def main() -> tuple[Any, Any]:
        async with live(tmp_path, **REAL) as running:
            before = await page(running)
            while not (now := await page(running))["batched"]:
                sent = [request() for _ in range(30)]
                check_own_rows(function, sent, await ask(running, sent))
            sent = [request() for _ in range(30)]
            check_own_rows(function, sent, await ask(running, sent))
            return before, now

    before, after = asyncio.run(main())
    assert "a sparse row has 1,048,576 cells, too many to try all of them" in before["alone"]
    assert after["proof"] == "traffic"
