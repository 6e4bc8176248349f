from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ferry_client import InvalidRequest, InvalidResponse, ModelStatus, Unsupported
from ferry_client.arrays import STRING, Array, Inputs
from ferry_client.calls import Calls
from ferry_client.exchange import Request, Response
from ferry_client.models import ModelSpec
from ferry_client.tensorflow_json import _DTYPES, TensorFlowJson
from hypothesis import given
from hypothesis import strategies as st

from tests.client.fakes import assert_same, reply_of, run, strings
from tests.client.tensors import TENSORS

_ENUMS = {dtype: name for name, dtype in _DTYPES.items()}


def spec(array: Array) -> dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in array.shape]
    return {"dtype": _ENUMS[array.dtype], "tensor_shape": {"dim": dims, "unknown_rank": False}}


def metadata(tensors: dict[str, Any], outputs: dict[str, Any] | None = None) -> dict[str, Any]:
    signature = {"inputs": tensors, "outputs": tensors if outputs is None else outputs}
    return {
        "model_spec": {"name": "m", "signature_name": "", "version": "7"},
        "metadata": {"signature_def": {"signature_def": {"serving_default": signature}}},
    }


def echo(described: dict[str, Any]) -> Any:
    """A model whose outputs are its inputs, answered as TensorFlow Serving writes columns."""

    def answer(request: Request) -> Response:
        if request.method == "GET":
            return reply_of(described)
        values = json.loads(request.body)["inputs"]
        return reply_of({"outputs": next(iter(values.values())) if len(values) == 1 else values})

    return answer


def predict(inputs: Inputs, answer: Any, outputs: tuple[str, ...] = (), signature: str = "") -> dict[str, Array]:
    return run(Calls(TensorFlowJson()).predict(ModelSpec("m", "", signature), inputs, outputs, 1.0), answer)


@given(st.dictionaries(st.text(max_size=5), TENSORS, min_size=1, max_size=3))
def test_tensors_come_back_as_they_went(inputs: dict[str, Array]) -> None:
    outputs = predict(inputs, echo(metadata({name: spec(array) for name, array in inputs.items()})))
    assert outputs.keys() == inputs.keys()
    for name, array in inputs.items():
        assert_same(one_nan(outputs[name]), one_nan(array))


def one_nan(array: Array) -> Array:
    """JSON has a single NaN; floating point has many."""
    if array.dtype == STRING or array.dtype.kind in "iub":
        return array
    return np.where(np.isnan(array), array.dtype.type(np.nan), array)


def test_one_array_goes_to_the_only_input() -> None:
    array = np.zeros((1, 2), np.float32)
    assert_same(predict(array, echo(metadata({"x": spec(array)})))["x"], array)


def test_strings_come_as_text_or_base64() -> None:
    described = metadata({"x": spec(strings([b""], (1,)))})
    answer = {"outputs": ["é", {"b64": "/w=="}]}
    found = predict(["a"], lambda request: reply_of(described if request.method == "GET" else answer))["x"]
    assert_same(found, strings(["é".encode(), b"\xff"], (2,)))


def test_request_names_signature_and_version() -> None:
    array = np.zeros(1, np.float32)
    call = Calls(TensorFlowJson()).predict(ModelSpec("m", "3"), {"x": array}, (), 1.0)
    assert next(call).path == "/v1/models/m/versions/3/metadata"
    request = call.send(reply_of(metadata({"x": spec(array)})))
    assert request.path == "/v1/models/m/versions/3:predict"
    assert json.loads(request.body) == {"signature_name": "serving_default", "inputs": {"x": [0.0]}}


def test_outputs_not_wanted_are_dropped() -> None:
    arrays = {"a": np.array([1]), "b": np.array([2])}
    answer = echo(metadata({name: spec(array) for name, array in arrays.items()}))
    assert list(predict(arrays, answer, ("b",))) == ["b"]
    with pytest.raises(InvalidRequest, match="Unknown output 'c'; the signature has 'a', 'b'"):
        predict(arrays, answer, ("c",))


def test_unknown_signature() -> None:
    with pytest.raises(InvalidRequest, match="no signature 'other'; it has 'serving_default'"):
        predict(np.zeros(1), echo(metadata({"x": spec(np.zeros(1))})), signature="other")


def test_types_without_json_are_rejected() -> None:
    with pytest.raises(Unsupported, match="'x' is complex64"):
        predict({"x": np.zeros(1, np.complex64)}, echo(metadata({"x": spec(np.zeros(1))})))


def test_metadata_names_types_and_sizes() -> None:
    tensors = {
        "x": {"dtype": "DT_BFLOAT16", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "2"}]}},
        "y": {"dtype": "DT_VARIANT", "tensor_shape": {"dim": [], "unknown_rank": True}},
    }
    found = run(Calls(TensorFlowJson()).metadata(ModelSpec("m")), echo(metadata(tensors)))
    assert (found.name, found.versions) == ("m", ("7",))
    assert (found.inputs["x"].dtype, found.inputs["x"].shape) == (ml_dtypes.bfloat16, (None, 2))
    assert (found.outputs["y"].dtype, found.outputs["y"].shape) == (None, None)


def status(version: str, state: str) -> dict[str, Any]:
    return {"version": version, "state": state, "status": {"error_code": "OK", "error_message": "why"}}


def test_models_are_listed() -> None:
    listed = {"models": [{"name": "m", "model_version_status": [status("2", "AVAILABLE"), status("1", "END")]}]}
    models = run(Calls(TensorFlowJson()).models(), lambda _: reply_of(listed))
    assert models == [ModelStatus("m", "2", True, "why"), ModelStatus("m", "1", False, "why")]


@pytest.mark.parametrize(("states", "ready"), [(["END", "AVAILABLE"], True), (["LOADING"], False), ([], False)])
def test_ready(states: list[str], ready: bool) -> None:
    document = {"model_version_status": [status("1", state) for state in states]}
    assert run(Calls(TensorFlowJson()).ready(ModelSpec("m")), lambda _: reply_of(document)) is ready


def test_readiness_that_makes_no_sense_is_none() -> None:
    assert run(Calls(TensorFlowJson()).ready(ModelSpec("m")), lambda _: reply_of([])) is False
    with pytest.raises(InvalidRequest, match="name a model"):
        next(Calls(TensorFlowJson()).ready(ModelSpec("")))


@pytest.mark.parametrize(
    ("array", "outputs"),
    [
        (np.zeros(2, np.int32), [1.5, 2]),
        (np.zeros(2, np.int8), [1, 300]),
        (np.zeros(2, np.float32), [[1], [1, 2]]),
        (np.zeros(2, np.float32), ["a"]),
        (np.zeros(2, np.float32), None),
        (strings([b""], (1,)), [1]),
        (strings([b""], (1,)), [{"b64": "???"}]),
        (strings([b""], (1,)), [{"text": ""}]),
    ],
)
def test_outputs_that_do_not_fit_the_metadata_say_so(array: Array, outputs: Any) -> None:
    answer = {"outputs": outputs} if outputs is not None else {}
    described = metadata({"x": spec(array)})
    with pytest.raises(InvalidResponse):
        predict(array, lambda request: reply_of(described if request.method == "GET" else answer))


def test_outputs_of_types_that_numpy_lacks_cannot_be_read() -> None:
    variant = {"dtype": "DT_VARIANT", "tensor_shape": {}}
    with pytest.raises(InvalidResponse, match="'x' has a type that numpy does not have"):
        predict(np.zeros(1), echo(metadata({"x": variant})))


@pytest.mark.parametrize(
    "document",
    [[], {}, metadata({"x": {}}), metadata({"x": {"dtype": "DT_INT8", "tensor_shape": {"dim": [{"size": "?"}]}}})],
)
def test_documents_that_make_no_sense_say_so(document: Any) -> None:
    with pytest.raises(InvalidResponse):
        run(Calls(TensorFlowJson()).metadata(ModelSpec("m")), lambda _: reply_of(document))
    with pytest.raises(InvalidResponse):
        run(Calls(TensorFlowJson()).models(), lambda _: reply_of(document))
