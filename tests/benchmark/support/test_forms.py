import json

import numpy as np
import pytest

from bench.support.forms import FORMS, agrees

ROW = np.arange(6, dtype=np.float32).reshape(2, 3)
HEADER = "inference-header-content-length"


def test_json_rows_are_instances() -> None:
    body = FORMS["v1-json"].write("x", ROW)
    assert json.loads(body.content) == {"instances": [ROW.tolist()]}
    assert body.headers["Content-Type"] == "application/json"


def test_open_inference_names_type_and_shape() -> None:
    tokens = np.array([1, 2], np.int32)
    (described,) = json.loads(FORMS["v2-json"].write("tokens", tokens).content)["inputs"]
    assert described == {"name": "tokens", "shape": [1, 2], "datatype": "INT32", "data": [1, 2]}


def test_binary_follows_its_header() -> None:
    body = FORMS["v2-binary"].write("x", ROW)
    head = int(body.headers["Inference-Header-Content-Length"])
    assert json.loads(body.content[:head])["inputs"][0]["parameters"] == {"binary_data_size": 24}
    assert body.content[head:] == ROW.tobytes()


def test_raw_is_the_bytes() -> None:
    assert FORMS["raw"].write("x", ROW).content == ROW.tobytes()


@pytest.mark.parametrize(
    ("form", "headers", "content"),
    [
        ("v1-json", {}, b'{"predictions": [[1.5, 2.5]]}'),
        ("list-json", {}, b"[[1.5, 2.5]]"),
        ("v2-json", {}, b'{"outputs": [{"data": [1.5, 2.5]}]}'),
        ("v2-binary", {HEADER: "2"}, b"{}" + np.array([1.5, 2.5], np.float32).tobytes()),
        ("raw", {}, np.array([1.5, 2.5], np.float32).tobytes()),
    ],
)
def test_replies_are_read(form: str, headers: dict[str, str], content: bytes) -> None:
    assert FORMS[form].read(headers, content).tolist() == [1.5, 2.5]


def test_answers_agree_within_rounding_and_not_beyond() -> None:
    expected = np.array([1.0, 2.0], np.float32)
    assert agrees(expected * 1.001, expected)
    assert agrees(expected.reshape(2, 1), expected)
    assert not agrees(expected[::-1], expected)
    assert not agrees(expected[:1], expected)
    assert agrees(FORMS["echo"].read({}, b"anything"), expected)
