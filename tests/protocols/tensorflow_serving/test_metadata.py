from __future__ import annotations

from dataclasses import replace

import numpy as np

from app.core.inference import STRING
from app.core.versions import VersionState, VersionStatus
from app.protocols.tensorflow_serving.metadata import (
    metadata_document,
    model_document,
    signatures_document,
    status_document,
)
from tests.support.protocol_fakes import signature_of, specs

AVAILABLE = VersionStatus(2, VersionState.AVAILABLE)
FAILED = VersionStatus(1, VersionState.END, "no such file")


def test_statuses_in_tensorflow_servings_words() -> None:
    assert status_document([AVAILABLE, FAILED]) == {
        "model_version_status": [
            {"version": "2", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}},
            {"version": "1", "state": "END", "status": {"error_code": "UNKNOWN", "error_message": "no such file"}},
        ]
    }


def test_a_model_in_the_list_of_all() -> None:
    assert model_document("a", [AVAILABLE]) == {"name": "a", **status_document([AVAILABLE])}
    assert model_document("b", []) == {"name": "b", "model_version_status": []}


def test_the_list_says_how_a_version_was_loaded_and_the_status_of_a_model_has_no_such_field() -> None:
    """A client of TensorFlow Serving that parses GetModelStatusResponse rejects fields that it does not know."""
    noted = replace(AVAILABLE, note="it runs in a session")
    model = model_document("a", [noted, FAILED])
    assert [each.get("note") for each in model["model_version_status"]] == ["it runs in a session", None]
    assert status_document([noted]) == status_document([AVAILABLE])


def test_metadata() -> None:
    signature = signature_of(specs(x=("float32", (None, 8)), s=("string", ())), specs(y=("int64", None)))
    assert metadata_document("m", 12, {"serving_default": signature}) == {
        "model_spec": {"name": "m", "signature_name": "", "version": "12"},
        "metadata": {
            "signature_def": {
                "signature_def": {
                    "serving_default": {
                        "inputs": {
                            "x": {
                                "dtype": "DT_FLOAT",
                                "tensor_shape": {
                                    "dim": [{"size": "-1", "name": ""}, {"size": "8", "name": ""}],
                                    "unknown_rank": False,
                                },
                                "name": "x:0",
                            },
                            "s": {
                                "dtype": "DT_STRING",
                                "tensor_shape": {"dim": [], "unknown_rank": False},
                                "name": "s:0",
                            },
                        },
                        "outputs": {
                            "y": {
                                "dtype": "DT_INT64",
                                "tensor_shape": {"dim": [], "unknown_rank": True},
                                "name": "y:0",
                            }
                        },
                        "method_name": "tensorflow/serving/predict",
                        "defaults": {},
                    }
                }
            }
        },
    }


def test_default_values_are_tensors_in_the_json_of_protocol_buffers() -> None:
    """The peer prints them by protobuf's JsonPrintOptions: all fields, int64 as text, bytes in base64."""
    signature = signature_of(specs(x=("float32", (None,)), n=("int64", ()), s=("string", (None,))), specs())
    defaults = {"x": np.array([1.5], np.float32), "n": np.array(7), "s": np.array([b"a"], STRING)}
    document = signatures_document({"f": replace(signature, defaults=defaults)})["signature_def"]["f"]["defaults"]
    assert document["x"]["dtype"] == "DT_FLOAT"
    assert document["x"]["tensor_shape"] == {"dim": [{"size": "1", "name": ""}], "unknown_rank": False}
    assert (document["x"]["float_val"], document["x"]["int64_val"]) == ([1.5], [])
    assert (document["n"]["int64_val"], document["n"]["tensor_shape"]["dim"]) == (["7"], [])
    assert document["s"]["string_val"] == ["YQ=="]
