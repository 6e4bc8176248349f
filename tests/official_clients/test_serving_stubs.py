"""TensorFlow Serving's own gRPC stubs, and gRPC's own for health and reflection, against a live Ferry."""

from __future__ import annotations

import pytest

from tests.official_clients.environment import Answers


def test_output_filter(stubs: Answers) -> None:
    outputs = stubs["output_filter"]
    assert list(outputs) == ["product"]
    assert outputs["product"].tolist() == [[1.0, 1.0]]


def test_the_reply_names_model_version_and_signature(stubs: Answers) -> None:
    assert stubs["model_spec_of_the_reply"] == {"name": "half_plus_two", "version": 1, "signature": "serving_default"}


def test_unix_socket(stubs: Answers) -> None:
    assert stubs["unix_socket"].tolist() == [2.5, 3.0]


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("model", "NOT_FOUND", "Servable not found for request: Latest(nope)"),
        ("version", "NOT_FOUND", "Servable not found for request: Specific(half_plus_two, 9)"),
        ("label", "INVALID_ARGUMENT", "Unrecognized servable version label: none"),
        ("signature", "FAILED_PRECONDITION", 'Serving signature key "none" not found.'),
        ("input", "INVALID_ARGUMENT", "'z'"),
        ("dtype", "INVALID_ARGUMENT", "float32"),
        ("shape", "INVALID_ARGUMENT", "[1,1]"),
    ],
)
def test_rejections(stubs: Answers, what: str, code: str, words: str) -> None:
    rejection = stubs["rejections"][what]
    assert rejection["code"] == code
    assert words in rejection["text"]


def test_deadline_of_the_call(stubs: Answers) -> None:
    assert stubs["deadline"]["code"] == "DEADLINE_EXCEEDED"


def test_classify(stubs: Answers) -> None:
    assert stubs["classify"] == [[["young", 99.0], ["old", 1.0]], [["young", 98.0], ["old", 2.0]]]


def test_regress_with_a_context(stubs: Answers) -> None:
    assert stubs["regress"] == [2.0, 8.0]


def test_multi_inference(stubs: Answers) -> None:
    assert stubs["multi_inference"] == {"scores": [[99.0, 1.0], [98.0, 2.0]], "values": [2.0, 4.0]}


def test_metadata(stubs: Answers) -> None:
    dt_float = 1
    assert stubs["metadata"] == {
        "version": 1,
        "method": "tensorflow/serving/predict",
        "inputs": {"a": [dt_float, [-1, 2]], "b": [dt_float, [-1, 2]]},
        "outputs": ["product", "sum"],
    }


def test_model_status(stubs: Answers) -> None:
    assert stubs["status"] == [[1, "AVAILABLE", 0]]
    assert stubs["status_of_no_model"]["code"] == "NOT_FOUND"


def test_a_folder_of_models_is_not_reloaded_by_calls(stubs: Answers) -> None:
    assert stubs["reload_of_a_folder"]["code"] == "UNIMPLEMENTED"


def test_health(stubs: Answers) -> None:
    serving = 1
    assert stubs["health"] == {"checks": [serving] * 4, "unknown": "NOT_FOUND"}


def test_reflection_suffices_for_a_call(stubs: Answers) -> None:
    told = stubs["reflection"]
    assert told["y"].tolist() == [4.0]
    services = {"tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"}
    assert services | {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= set(told["services"])
