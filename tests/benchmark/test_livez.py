from __future__ import annotations

import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from bench.livez import requests_for, table
from bench.support.livez_watch import Latency
from tests.awkward.awkward_model import Asked, AwkwardModel, floats, ints


def test_the_table_begins_with_the_worst_and_ends_with_the_count() -> None:
    _, first, second, last = table(
        [Latency("good", 9, 0.01, 0.05, 0.002, 0.004), Latency("bad", 9, 0.01, 0.2, 0.003, 0.005)]
    ).splitlines()
    assert first.split() == ["bad", "9", "10.0", "0.50", "200.0", "2.00", "FAIL", "3.0", "5.0"]
    assert second.split() == ["good", "9", "10.0", "0.50", "50.0", "0.50", "pass", "2.0", "4.0"]
    assert last == "1 of 2 pass: p99 <= 20 ms, worst <= 100 ms"


@pytest.mark.parametrize(
    ("inputs", "sizes"),
    [
        ({"x": floats(1, 2, 3)}, [3, 64]),
        ({"x": floats(1, 2), "scale": np.float32(1)}, [2]),
        ({"x": ints(1, 2), "x_1": np.array([0, 2])}, [2]),
        ({"x": floats()}, [0]),
    ],
    ids=["rows", "a scalar", "ragged", "no rows"],
)
def test_each_request_is_also_asked_for_a_full_batch(inputs: dict[str, np.ndarray], sizes: list[int]) -> None:
    model = AwkwardModel(name="a b", make=lambda path: None, asked=[Asked(inputs, "s")])
    posts = requests_for(model)
    assert {path for path, _ in posts} == {"/v1/models/a%20b:predict?signature_name=s"}
    requests = [message_class("tensorflow.serving.PredictRequest").FromString(body) for _, body in posts]
    assert [each.inputs["x"].tensor_shape.dim[0].size for each in requests] == sizes
