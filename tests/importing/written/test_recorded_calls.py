"""Golden and warm-up requests of an import: TensorFlow's own reader reads them, and so does a load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensors
from app.core.inference import Array
from app.importing.written.recorded_calls import GOLDEN_FILE, WARM_UP_FILE, write_recorded_calls
from app.loading.values.warm_up_requests import read_known_rows
from tests.importing.accept.sources import imported, mean_colours


class Call(NamedTuple):
    signature: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


def _logs(file: Path) -> list[Any]:
    """Records as TensorFlow reads them, with their checksums."""
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    return [message_class("tensorflow.serving.PredictionLog").FromString(record) for record in records]


def _arrays(protos: Any) -> dict[str, Array]:
    return decode_tensors(protos, 1 << 30)


def test_calls_of_the_proof_are_requests_with_the_answers_of_the_source(tmp_path: Path) -> None:
    source = mean_colours()
    proven, _ = imported(source, tmp_path / "1", accept="jpeg")
    golden = [log.predict_log for log in _logs(tmp_path / "1" / GOLDEN_FILE)]
    assert [log.request.model_spec.signature_name for log in golden] == 3 * ["serving_default"] + 3 * ["tensors"]
    for log in golden[3:]:
        answer = source.endpoints[0].run(_arrays(log.request.inputs))
        for name, array in _arrays(log.response.outputs).items():
            np.testing.assert_array_equal(array, answer[name])
    warm_up = [log.predict_log for log in _logs(tmp_path / "1" / WARM_UP_FILE)]
    assert [log.request for log in warm_up] == [log.request for log in golden]
    assert not any(log.HasField("response") for log in warm_up)
    known = read_known_rows(tmp_path / "1", proven.signatures)
    assert known.keys() == {"serving_default", "tensors"}
    assert {array.shape for row in known["tensors"] for array in row.values()} == {(1, 16, 24, 3)}


def test_every_type_comes_back(tmp_path: Path) -> None:
    arrays = {
        "text": np.array([["Größe", ""]]),
        "bytes": np.array([b"a\xff", b""], object),
        "half": np.array([1, np.nan], np.float16),
        "flag": np.array(True),
        "whole": np.zeros((0, 3), np.int64),
    }
    write_recorded_calls(tmp_path, [Call("s", arrays, {"y": np.array([1.5], np.float32)})])
    (log,) = _logs(tmp_path / GOLDEN_FILE)
    found = _arrays(log.predict_log.request.inputs)
    assert found["text"].tolist() == [["Größe".encode(), b""]]
    assert found["bytes"].tolist() == [b"a\xff", b""]
    for name in ("half", "flag", "whole"):
        np.testing.assert_array_equal(found[name], arrays[name], strict=True)


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([900_000, 100, 200_000], [100, 200_000]),
        ([3 << 20], [3 << 20]),
        ([5 << 20], []),
        ([2 << 20, 3 << 20], [2 << 20]),
    ],
)
def test_large_calls_are_left_out(sizes: list[int], kept: list[int], tmp_path: Path) -> None:
    calls = [Call("s", {"x": np.zeros(size, np.uint8)}, {}) for size in sizes]
    write_recorded_calls(tmp_path, calls)
    file = tmp_path / GOLDEN_FILE
    found = _logs(file) if file.exists() else []
    assert [len(_arrays(log.predict_log.request.inputs)["x"]) for log in found] == kept


def test_a_type_that_no_message_carries_is_left_out(tmp_path: Path) -> None:
    write_recorded_calls(tmp_path, [Call("s", {"x": np.zeros(2, "M8[s]")}, {})])
    assert not list(tmp_path.iterdir())


def test_the_warm_up_file_of_a_source_stays(tmp_path: Path) -> None:
    (tmp_path / WARM_UP_FILE).parent.mkdir()
    (tmp_path / WARM_UP_FILE).write_bytes(b"theirs")
    write_recorded_calls(tmp_path, [Call("s", {"x": np.zeros(2, np.uint8)}, {})])
    assert (tmp_path / WARM_UP_FILE).read_bytes() == b"theirs"
    assert len(_logs(tmp_path / GOLDEN_FILE)) == 1
