from __future__ import annotations

import numpy as np

from app.core.inference import TensorSpec
from app.core.versions import VersionState, VersionStatus
from app.protocols.open_inference.metadata import (
    available,
    index_documents,
    model_document,
    server_document,
    wire_shape,
)
from tests.support.protocol_fakes import signature_of, specs


def test_the_server_lists_what_works():
    document = server_document(shared_memory=False)
    assert document["name"] == "ferry"
    assert set(document["extensions"]) == {
        "binary_tensor_data", "classification", "model_configuration", "model_repository", "parameters",
        "schedule_policy", "statistics",
    }  # fmt: skip
    assert "system_shared_memory" in server_document(shared_memory=True)["extensions"]


def test_a_model():
    inputs = specs(x=("float32", (None, 4)), s=("string", ()))
    signature = signature_of(inputs, specs(y=("complex64", None)))
    assert model_document("m", [10, 9], signature) == {
        "name": "m",
        "versions": ["9", "10"],
        "platform": "tensorflow_savedmodel",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "s", "datatype": "BYTES", "shape": []},
        ],
        "outputs": [{"name": "y", "datatype": "COMPLEX64", "shape": [-1]}],
    }


def test_a_pipeline_is_of_a_platform_of_its_own():
    signature = signature_of(specs(x=("float32", (None, 4))), specs(y=("float32", (None,))))
    assert model_document("m", [1], signature, pipeline=True)["platform"] == "ferry_pipeline"


def test_shapes():
    assert wire_shape(TensorSpec("x", np.dtype(np.int8), (None, 2))) == [-1, 2]
    assert wire_shape(TensorSpec("x", np.dtype(np.int8), None)) == [-1]


STATUSES = [
    VersionStatus(3, VersionState.LOADING),
    VersionStatus(2, VersionState.AVAILABLE),
    VersionStatus(1, VersionState.END, "no graph"),
    VersionStatus(0, VersionState.END),
]


def test_the_index():
    assert [*index_documents("m", STATUSES, ready=False), *index_documents("n", [], ready=False)] == [
        {"name": "m", "version": "3", "state": "LOADING", "reason": ""},
        {"name": "m", "version": "2", "state": "READY", "reason": ""},
        {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "no graph"},
        {"name": "m", "version": "0", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "n", "version": "", "state": "UNAVAILABLE", "reason": "no version of it is loaded"},
    ]
    assert [each["version"] for each in index_documents("m", STATUSES, ready=True)] == ["2"]
    assert index_documents("n", [], ready=True) == []


def test_every_state_has_a_word():
    assert all(index_documents("m", [VersionStatus(1, state)], ready=False) for state in VersionState)


def test_available_versions():
    assert available(STATUSES) == [2]
