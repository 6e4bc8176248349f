"""RaggedTensors to a real model: fed without padding, in batches, cut where they are large."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.codecs.json.predict_documents import decode_predict, encode_predict
from app.config.settings import Settings
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceRequest
from app.runtimes.tensorflow.saved_model.signature_defs import read_signatures, serving_graph
from app.server.server import Server
from tests.every_protocol.live import all_waiting_rows
from tests.support import savedmodels
from tests.support.waiting import HANG_S

RANDOM = np.random.default_rng(4)


def request(rows: int) -> dict[str, Array]:
    """Random rows, some of them empty."""
    words, tables = RANDOM.integers(0, 5, rows), RANDOM.integers(0, 4, rows)
    inner = RANDOM.integers(0, 3, tables.sum())
    return {
        "words": RANDOM.integers(0, 9, words.sum()).astype(np.int32),
        "words_1": np.cumsum([0, *words]),
        "scale": RANDOM.random(rows, np.float32),
        "tables": RANDOM.random(inner.sum(), np.float32),
        "tables_1": np.cumsum([0, *tables]),
        "tables_2": np.cumsum([0, *inner]),
    }


def expected(sent: dict[str, Array]) -> dict[str, list[float]]:
    inner = [sent["tables"][a:b].sum() for a, b in zip(sent["tables_2"], sent["tables_2"][1:], strict=False)]
    words = [sent["words"][a:b].sum() for a, b in zip(sent["words_1"], sent["words_1"][1:], strict=False)]
    cells = [sum(inner[a:b]) for a, b in zip(sent["tables_1"], sent["tables_1"][1:], strict=False)]
    return {"sums": list(np.array(words) * sent["scale"]), "cells": cells}


def served(
    folder: Path, *requests: dict[str, Array], name: str = "ragged", outputs: tuple[str, ...] = (), **more: Any
) -> list[Any]:
    async def main() -> list[Any]:
        batching: Any = {"max_batch_size": 8, "batches_in_flight": 1}
        batching |= {"max_inline_ms": 0, "ready_when": "tuned", "load_budget_s": HANG_S}
        server = Server(Settings(models=folder, grpc_port=0, **batching, **more))
        await server.start()
        assert server._starting is not None
        await server._starting
        model = server.repository.resolve(name)
        answers = [model.infer(InferenceRequest(each, outputs=outputs)) for each in requests]
        found: list[Any] = await asyncio.gather(*answers, return_exceptions=True)
        await server.stop()
        return found

    with all_waiting_rows():
        return asyncio.run(main())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    savedmodels.make_ragged(folder / "ragged" / "1")
    return folder


def test_ragged_inputs_are_known_by_the_saved_function(folder: Path, tmp_path: Path) -> None:
    ragged = read_signatures(serving_graph(folder / "ragged" / "1"), "m")["serving_default"].ragged
    assert ragged == {"words": ("words_1",), "tables": ("tables_1", "tables_2")}
    savedmodels.make_twins(tmp_path / "twins" / "1")
    assert read_signatures(serving_graph(tmp_path / "twins" / "1"), "m")["serving_default"].ragged == {}


def test_ragged_inputs_are_known_where_all_outputs_are_ragged_too(tmp_path: Path) -> None:
    savedmodels.make_ragged_echo(tmp_path / "echo" / "1")
    signature = read_signatures(serving_graph(tmp_path / "echo" / "1"), "m")["serving_default"]
    assert (signature.ragged, signature.ragged_outputs) == ({"words": ("words_1",)}, {"longer": ("longer_1",)})
    document = {"instances": [["a", "b"], [], ["c"]]}
    (answer,) = served(tmp_path, decode_predict(document, signature)[0], name="echo")
    written = encode_predict(answer.outputs, True, ragged=signature.ragged_outputs)
    assert written == b'{"predictions":[["a","b","a"],[],["c","c"]]}'


@pytest.mark.parametrize("strict_shapes", [True, False])
def test_rows_of_different_lengths_share_calls(folder: Path, strict_shapes: bool) -> None:
    requests = [request(rows) for rows in (1, 2, 0, 3, 1)]
    for sent, answer in zip(requests, served(folder, *requests, strict_shapes=strict_shapes), strict=True):
        assert answer.timing.rows == 7
        for name, values in expected(sent).items():
            np.testing.assert_allclose(answer.outputs[name], values, rtol=1e-5)


def test_a_large_request_is_cut(folder: Path) -> None:
    large = request(21)
    (answer,) = served(folder, large)
    for name, values in expected(large).items():
        np.testing.assert_allclose(answer.outputs[name], values, rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"words_1": np.array([0, 1, 9])}, "Input 'words_1' must be row splits of 'words': ascending from 0 to 3"),
        ({"words_1": np.array([0, 4, 3])}, "Input 'words_1' must be row splits"),
        ({"words_1": np.array([1, 2, 3])}, "Input 'words_1' must be row splits"),
        ({"words_1": np.array([], np.int64)}, "Input 'words_1' must be row splits"),
        ({"tables_1": np.array([0, 1, 4])}, "Input 'tables_1' must be row splits of 'tables_2': ascending from 0 to 2"),
        ({"scale": np.ones(3, np.float32)}, "equally many rows; 'words' has 2, 'scale' has 3, 'tables' has 2"),
    ],
)
def test_wrong_row_splits_are_rejected_before_their_batch(folder: Path, wrong: dict[str, Array], text: str) -> None:
    good = {
        "words": np.array([1, 2, 3], np.int32),
        "words_1": np.array([0, 1, 3]),
        "scale": np.ones(2, np.float32),
        "tables": np.ones(2, np.float32),
        "tables_1": np.array([0, 1, 2]),
        "tables_2": np.array([0, 1, 2]),
    }
    rejected, answer = served(folder, good | wrong, good)
    assert isinstance(rejected, InvalidRequest)
    assert text in str(rejected)
    assert answer.outputs["sums"].tolist() == [1, 5]


# --- ragged outputs ---


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counting")
    savedmodels.make_ragged_output(folder / "counting" / "1")
    return folder


def counted(x: list[int]) -> dict[str, list[int]]:
    """What the model is to answer, computed row by row."""
    counts = [number for each in x for number in range(each)]
    table = [number for each in x for number in [*range(each), *range(each)]]
    return {
        "counts": counts,
        "counts_1": np.cumsum([0, *x]).tolist(),
        "double": [2 * each for each in x],
        "table": table,
        "table_1": list(range(0, 2 * len(x) + 1, 2)),
        "table_2": np.cumsum([0, *[each for each in x for _ in range(2)]]).tolist(),
    }


X: list[list[int]] = [[3], [0, 2], [], [1, 4, 0], [5]]


def test_ragged_outputs_are_told_as_values_and_row_splits(counting: Path) -> None:
    signature = read_signatures(serving_graph(counting / "counting" / "1"), "m")["serving_default"]
    assert signature.ragged_outputs == {"counts": ("counts_1",), "table": ("table_1", "table_2")}
    assert sorted(signature.outputs) == ["counts", "counts_1", "double", "table", "table_1", "table_2"]
    assert signature.outputs["counts_1"].dtype == np.int64
    assert signature.batchable


@pytest.mark.parametrize("outputs", [(), ("table", "double", "table_2", "table_1"), ("double",)])
def test_everyone_gets_the_rows_of_a_ragged_output_that_are_theirs(counting: Path, outputs: tuple[str, ...]) -> None:
    requests = [{"x": np.array(x, np.int32)} for x in X]
    for x, answer in zip(X, served(counting, *requests, name="counting", outputs=outputs), strict=True):
        assert answer.timing.rows == 7
        want = {name: values for name, values in counted(x).items() if not outputs or name in outputs}
        assert {name: array.tolist() for name, array in answer.outputs.items()} == want


def test_values_without_their_row_splits_share_no_call(counting: Path) -> None:
    requests = [{"x": np.array(x, np.int32)} for x in X]
    for x, answer in zip(X, served(counting, *requests, name="counting", outputs=("counts",)), strict=True):
        assert {name: array.tolist() for name, array in answer.outputs.items()} == {"counts": counted(x)["counts"]}


def test_a_large_request_with_a_ragged_output_is_cut_and_joined(counting: Path) -> None:
    x = RANDOM.integers(0, 5, 21).tolist()
    (answer,) = served(counting, {"x": np.array(x, np.int32)}, name="counting")
    assert {name: array.tolist() for name, array in answer.outputs.items()} == counted(x)
