"""A long body gets the same reply whichever process reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codecs.format_registry import JSON
from app.codecs.json import predict_documents
from app.core.errors import InvalidRequest
from app.core.inference import Array
from app.protocols.tensorflow_serving import rest_examples
from app.protocols.tensorflow_serving.bodies_in_process import format_in_process
from app.transports.http.http_api import LONG_BODY_BYTES
from app.transports.http.long_bodies.reading_process import ReadingProcess
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from tests.support.protocol_fakes import Answer, Client, FakeModel, echo_model, model, signature_of, specs
from tests.support.waiting import HANG_S

LARGEST = 4 * LONG_BODY_BYTES
PADDING = b" " * LONG_BODY_BYTES


@pytest.fixture(scope="module")
def process() -> Iterator[ReadingProcess]:
    process = ReadingProcess()
    process.begin(lambda: HANG_S)
    yield process
    process.end()


def two_inputs() -> FakeModel:
    inputs = specs(a=("int64", (None, None)), s=("string", (None,)))
    return model(inputs, inputs, dict)


def classifier() -> FakeModel:
    outputs = specs(scores=("float32", (None, None)))
    return model(
        specs(inputs=("string", (None,))), outputs, lambda i: {"scores": np.ones((len(i["inputs"]), 2), np.float32)}
    )


MODELS = {
    "floats": lambda: echo_model("float32", (None, None)),
    "integers": lambda: echo_model("int8", (None,)),
    "any rank": lambda: echo_model("float64"),
    "strings": lambda: echo_model("string", (None,)),
    "bools": lambda: echo_model("bool", (None,)),
    "two": two_inputs,
}


def asked(kind: str, content: bytes, readers: ReadingProcesses | None, path: str, headers: Mapping[str, str]) -> Answer:
    served = classifier() if kind == "classifier" else MODELS[kind]()
    return Client(served, max_body_bytes=LARGEST, timeout_ms=HANG_S * 1e3, readers=readers).post(path, content, headers)


def both(
    readers: ReadingProcesses, kind: str, content: bytes, path: str = "/v1/models/m:predict", **headers: str
) -> Answer:
    """The answer, which is the same from both."""
    here, there = (asked(kind, content, each, path, headers) for each in (None, readers))
    assert here == there
    return here


leaves = (
    st.integers()
    | st.floats(allow_subnormal=False)
    | st.booleans()
    | st.none()
    | st.text(max_size=5)
    | st.builds(lambda text: {"b64": text}, st.sampled_from(["aGk=", "aGk", "?", ""]))
)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
objects = st.dictionaries(st.sampled_from(["a", "s", "x", "other"]), values, max_size=3)
documents = st.dictionaries(
    st.sampled_from(["instances", "inputs", "signature_name", "other"]),
    values | st.lists(objects, max_size=3) | objects | st.sampled_from(["serving_default", "none"]),
    max_size=3,
)


@given(kind=st.sampled_from(sorted(MODELS)), document=documents)
@example("floats", {"instances": [[1.5, 2], [3, 4]]})
@example("floats", {"instances": [[1.5, 2], [3]]})
@example("floats", {"inputs": [[float("nan"), float("inf")]]})
@example("strings", {"instances": ["a", {"b64": "/w=="}, ""]})
@example("two", {"inputs": {"a": [[1, 2], [3, 4]], "s": ["a", "b"]}})
@example("two", {"instances": [{"a": [1, 2], "s": "x"}, {"a": [3, 4], "s": "y"}]})
@example("two", {"instances": [{"a": [1, 2], "s": "x"}, 5]})
def test_a_document_is_answered_equally(readers: ReadingProcesses, kind: str, document: Any) -> None:
    both(readers, kind, json.dumps(document).encode() + PADDING)


@given(text=st.binary(max_size=40) | st.text('[]{}:,"\\ 01.eE-+naNIfx', max_size=40).map(str.encode))
def test_what_is_not_json_is_answered_equally(readers: ReadingProcesses, text: bytes) -> None:
    both(readers, "any rank", PADDING + text)


@pytest.mark.parametrize("row", [b"[1.5,2.25]", b"NaN", b"[]", b"1", b"[[", b'"text"', b'{"b64":"aGk="}'])
def test_many_rows_are_answered_equally(readers: ReadingProcesses, row: bytes) -> None:
    content = b'{"instances":[' + b",".join([row] * (LONG_BODY_BYTES // len(row))) + b"]}"
    both(readers, "strings" if row[:1] in b'"{' else "any rank", content)


@given(document=documents)
def test_messagepack_is_answered_equally(readers: ReadingProcesses, document: Any) -> None:
    try:
        content = msgpack.packb({**document, "padding": PADDING})
    except (OverflowError, UnicodeEncodeError):
        return
    both(readers, "floats", content, **{"content-type": "application/msgpack"})


@pytest.mark.parametrize("query", ["signature_name=serving_default&output=y", "signature_name=none", "output=none"])
def test_the_query_counts(readers: ReadingProcesses, query: str) -> None:
    both(readers, "floats", b'{"instances": [[1, 2]]}' + PADDING, f"/v1/models/m:predict?{query}")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/models/none:predict", {}),
        ("/v1/models/m:predict", {"content-type": "text/html"}),
        ("/v1/models/m:predict", {"x-request-timeout-ms": "soon"}),
        ("/v1/models/m:predict", {"accept": "text/html"}),
    ],
)
def test_other_errors_are_answered_equally(readers: ReadingProcesses, path: str, headers: dict[str, str]) -> None:
    assert both(readers, "floats", PADDING, path, **headers).status >= 400


@pytest.mark.parametrize(
    "document",
    [
        {"examples": [{"a": 1, "b": ["x"]}, {"c": 1.5}]},
        {"examples": []},
        {"examples": [{"a": [1, "x"]}]},
        {"signature_name": "none", "examples": [{}]},
        {"signature_name": 5},
        [],
    ],
)
@pytest.mark.parametrize("method", ["classify", "regress"])
def test_examples_are_answered_equally(readers: ReadingProcesses, method: str, document: Any) -> None:
    both(readers, "classifier", json.dumps(document).encode() + PADDING, f"/v1/models/m:{method}")


def groups(body_format: Any, content: bytes, kind: str) -> Any:
    signature = (
        signature_of(specs(a=("int64", None), s=("string", None)), specs(y=("float32", None)))
        if kind == "two"
        else signature_of(specs(x=("float32", None)), specs(y=("float32", None)))
    )
    try:
        found = body_format.read(content, LARGEST).row_groups(signature)
    except InvalidRequest as error:
        return str(error)
    return [(list(numbers), {name: plain(array) for name, array in inputs.items()}) for numbers, inputs in found]


def plain(array: Array) -> Any:
    return array.dtype, array.tolist()


@given(
    rows=st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=5),
    key=st.sampled_from(["instances", "inputs"]),
)
def test_rows_of_different_shapes_are_grouped_equally(process: ReadingProcess, rows: Any, key: str) -> None:
    content = json.dumps({key: rows}).encode()
    assert groups(JSON, content, "one") == groups(format_in_process(JSON, process), content, "one")
    content = json.dumps({"instances": [{"a": row, "s": "x"} for row in rows]}).encode()
    assert groups(JSON, content, "two") == groups(format_in_process(JSON, process), content, "two")


@pytest.mark.parametrize("method", ["predict", "classify"])
def test_this_process_parses_no_long_body_and_every_short_one(
    readers: ReadingProcesses, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    kind = "classifier" if method == "classify" else "floats"
    content = b'{"examples": [{}]}' if method == "classify" else b'{"instances": [[1, 2]]}'

    def not_here(*_: object, **__: object) -> NoReturn:
        raise InvalidRequest("parsed in this process")

    for module in (predict_documents, rest_examples):
        monkeypatch.setattr(module, "parse", not_here)
    assert asked(kind, content + PADDING, readers, f"/v1/models/m:{method}", {}).status == 200
    assert asked(kind, content, readers, f"/v1/models/m:{method}", {}).error == "parsed in this process"


MANY = 3000


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [
        ("floats", b'{"instances": [%b]}' % b",".join([b"[1.5, NaN]"] * MANY), 200),
        ("floats", b'{"instances": [%b]}' % b",".join([b"{}"] * MANY), 400),
        ("floats", b'{"instances": [%b[1]]}' % (b"[1, 2]," * MANY), 400),
        ("floats", b'{"instances": [%b}' % b",".join([b"[1, 2]"] * MANY), 400),
        ("strings", b'{"instances": [%b]}' % b",".join([b'"text"'] * MANY), 200),
        ("strings", b'{"instances": [%b]}' % b",".join([b"12345678"] * MANY), 400),
        ("any rank", b'{"inputs": %b1%b}' % (b"[" * MANY * 3, b"]" * MANY * 3), 400),
    ],
)
def test_a_short_body_of_many_values_is_read_apart_with_the_same_answer(
    readers: ReadingProcesses, monkeypatch: pytest.MonkeyPatch, kind: str, content: bytes, status: int
) -> None:
    assert len(content) < LONG_BODY_BYTES
    read, times = readers.read, []

    def counted(*args: Any) -> Any:
        times.append(args)
        return read(*args)

    monkeypatch.setattr(readers, "read", counted)
    assert both(readers, kind, content).status == status
    assert len(times) == 1


def test_a_few_examples_of_many_features_are_read_apart(
    readers: ReadingProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps({"examples": [{str(number): 1.5 for number in range(MANY)}]}).encode()
    monkeypatch.setattr(rest_examples, "read_examples", _not_here)
    assert asked("classifier", content, readers, "/v1/models/m:classify", {}).status == 200


@pytest.mark.parametrize("rows", [1, 3000])
def test_numbers_are_read_at_once_also_if_there_are_thousands(readers: ReadingProcesses, rows: int) -> None:
    content = json.dumps({"instances": [[0.123456789] * 4] * rows}).encode()

    async def not_there(*_: object) -> NoReturn:
        raise AssertionError("read apart")

    readers_here = ReadingProcesses()
    readers_here.read = not_there  # type: ignore[method-assign] - must not be called
    assert asked("floats", content, readers_here, "/v1/models/m:predict", {}).status == 200
    readers_here.close()


def _not_here(*_: object, **__: object) -> NoReturn:
    raise InvalidRequest("parsed in this process")
