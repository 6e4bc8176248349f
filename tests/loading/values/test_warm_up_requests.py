"""Files as TensorFlow Serving's users write them: a TFRecord of PredictionLogs; the oracle is what was written."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.codecs.protobuf.messages import message_class
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import STRING, Array, ModelSignature, TensorSpec, string_array
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.row_probe import probe_rows
from app.loading.values.accepted_rows import accepted_inputs
from app.loading.values.warm_up_requests import FILE_NAME, read_known_rows

Log = message_class("tensorflow.serving.PredictionLog")

SIGNATURE = ModelSignature(
    "serving_default",
    {"x": TensorSpec("x", np.dtype(np.float32), (None, 2))},
    {"y": TensorSpec("y", np.dtype(np.float32), (None,))},
)
TEXTS = ModelSignature("texts", {"t": TensorSpec("t", STRING, (None,))}, SIGNATURE.outputs)
SIGNATURES = {"serving_default": SIGNATURE, "texts": TEXTS}


def predict(signature: str = "", **inputs: Any) -> Any:
    log = Log()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].MergeFromString(tf.make_tensor_proto(value).SerializeToString())
    return log


def write(folder: Path, *logs: Any) -> Path:
    (folder / FILE_NAME).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / FILE_NAME)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    return folder


def test_rows_of_requests_are_known_by_signature(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = read_known_rows(write(tmp_path, predict(x=x), predict("texts", t=[b"a"])), SIGNATURES)
    assert [row["x"].tolist() for row in found["serving_default"]] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert [row["t"].tolist() for row in found["texts"]] == [[b"a"]]


def test_the_page_shows_how_to_write_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "running-alone.md").read_text()
    (lines,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    word = {"word": TensorSpec("word", STRING, (None,))}
    monkeypatch.chdir(tmp_path)
    for name, code in (
        ("serving_default", lines),
        ("named", lines.replace("field(1, request)", 'field(1, field(1, field(3, b"named")) + request)')),
    ):
        exec(code, {})  # noqa: S102 - the page's own
        signature = ModelSignature(name, word, SIGNATURE.outputs)
        (rows,) = read_known_rows(Path("models/ranker/1"), {name: signature}).values()
        assert [row["word"].tolist() for row in rows] == [[b"a date: 2024-05-01"], [b"a date: 1999-12-31"]]


def test_a_row_beside_an_input_that_is_no_row_has_it_whole(tmp_path: Path) -> None:
    number = np.dtype(np.float32)
    inputs = {**SIGNATURE.inputs, "temperature": TensorSpec("temperature", number, ())}
    rows = GraphRows({"y": OutputRows("proven")}, frozenset({"x"}), frozenset({"temperature"}))
    signature = ModelSignature("serving_default", inputs, SIGNATURE.outputs, graph_rows=rows)
    sent = predict(x=np.arange(4, dtype=np.float32).reshape(2, 2), temperature=np.float32(0.5))
    found = read_known_rows(write(tmp_path, sent), {"serving_default": signature})["serving_default"]
    assert [row["x"].tolist() for row in found] == [[[0, 1]], [[2, 3]]]
    assert [(row["temperature"].shape, float(row["temperature"])) for row in found] == [((), 0.5)] * 2


def test_examples_of_a_classification_are_rows_of_its_input(tmp_path: Path) -> None:
    log = Log()
    log.classify_log.request.model_spec.signature_name = "texts"
    example = log.classify_log.request.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(1.5)
    (row,) = read_known_rows(write(tmp_path, log), SIGNATURES)["texts"]
    assert tf.train.Example.FromString(row["t"][0]).features.feature["x"].float_list.value == [1.5]


def test_what_does_not_fit_is_left_out(tmp_path: Path) -> None:
    wrong = [predict(x=np.ones((1, 3), np.float32)), predict(x=np.ones((1, 2), np.int32)), predict(z=[1.0]),
             predict("gone", x=np.ones((1, 2), np.float32)), Log(), predict(x=np.ones((1, 2), np.float32))]  # fmt: skip
    found = read_known_rows(write(tmp_path, *wrong), SIGNATURES)
    assert [row["x"].tolist() for row in found["serving_default"]] == [[[1, 1]]]


def test_few_rows_are_read_however_many_there_are(tmp_path: Path) -> None:
    many = [predict(x=np.full((50, 2), number, np.float32)) for number in range(100)]
    assert len(read_known_rows(write(tmp_path, *many), SIGNATURES)["serving_default"]) == 6


@pytest.mark.parametrize("content", [b"no record", b"\xff" * 100, b"\x05" + b"\0" * 11 + b"abc", b""])
def test_a_file_that_holds_no_records_is_ignored(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).parent.mkdir()
    (tmp_path / FILE_NAME).write_bytes(content)
    assert read_known_rows(tmp_path, SIGNATURES) == {}


def test_no_file_is_no_rows(tmp_path: Path) -> None:
    assert read_known_rows(tmp_path, SIGNATURES) == {}


class Particular:
    """Accepts the texts one, two and three alone; a row sees the others if it is `mixing`."""

    def __init__(self, *, mixing: bool) -> None:
        self.signatures = {"texts": TEXTS}
        self.mixing = mixing

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        numbers = {b"one": 1.0, b"two": 2.0, b"three": 3.0}
        if not set(inputs["t"]) <= numbers.keys():
            raise InvalidRequest("no such text")
        y = np.array([numbers[text] for text in inputs["t"]], np.float32)
        return {"y": y - y.mean() if self.mixing else y}

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("mixing", "dependent"),
    [(True, {"y": "a row's answer depends on the other rows in a call of 2 rows"}), (False, {})],
)
def test_known_rows_prove_where_all_others_are_rejected(*, mixing: bool, dependent: dict[str, str]) -> None:
    known = {"texts": [{"t": string_array([text])} for text in (b"one", b"two", b"three")]}
    model = BudgetedModel(Particular(mixing=mixing), TimeBudget(60.0), known_rows=known)
    assert accepted_inputs(model, TEXTS, 2)["t"].tolist() == [b"one", b"one"]
    probed = probe_rows(model, TEXTS, BatchSizes.powers_of_two(8))
    assert probed.dependent == dependent
    assert probed.proven == (frozenset() if mixing else {"y"})


def test_without_them_nothing_is_proven() -> None:
    model = BudgetedModel(Particular(mixing=True), TimeBudget(60.0))
    assert probe_rows(model, TEXTS, BatchSizes.powers_of_two(8)).unproven
    assert accepted_inputs(model, TEXTS, 1)["t"].tolist() == [b""]
