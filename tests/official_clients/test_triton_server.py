"""tritonclient asks a live Ferry about itself and changes what it serves (HTTP and gRPC)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.official_clients.environment import Answers

PROTOCOLS = ["rest", "grpc"]
#: An HTTP status, and the gRPC status for the same.
BAD = {"rest": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}
UNKNOWN = {"rest": "404", "grpc": "StatusCode.NOT_FOUND"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_system_shared_memory(triton: Answers, triton_server: Answers, protocol: str) -> None:
    seen = triton_server["system_shared_memory"][protocol]
    assert seen["known"] == ["in", "out"]
    assert seen["probabilities"].tobytes() == triton["http_binary"]["digits"]["probabilities"].tobytes()
    assert seen["after"]["status"] == BAD[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_health(triton_server: Answers, protocol: str) -> None:
    live, ready, model, version, unknown = triton_server["health"][protocol]
    assert (live, ready, model, version, unknown) == (True, True, True, True, False)


def test_metadata(triton_server: Answers) -> None:
    for method in ("server_metadata", "model_metadata", "model_config"):
        assert triton_server[method].keys() == set(PROTOCOLS)
    assert triton_server["server_metadata"]["rest"] == triton_server["server_metadata"]["grpc"]
    model = triton_server["model_metadata"]["rest"]
    assert (model["name"], model["versions"], model["platform"]) == ("digits", ["1"], "tensorflow_savedmodel")
    assert model["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 8, 8]}]
    assert model["outputs"] == [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}]


def test_configuration(triton_server: Answers) -> None:
    by_rest, by_grpc = triton_server["model_config"]["rest"], triton_server["model_config"]["grpc"]["config"]
    for config in (by_rest, by_grpc):
        assert (config["name"], config["max_batch_size"]) == ("digits", 16)
        assert [int(size) for size in config["input"][0]["dims"]] == [8, 8]
        assert config["output"][0]["data_type"] == "TYPE_FP32"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_statistics_count_what_was_asked(triton_server: Answers, protocol: str) -> None:
    before, after = (triton_server["statistics"][protocol][when] for when in ("before", "after"))
    assert (after["name"], after["version"]) == ("half_plus_two", "1")

    def grown(count: Any) -> int:
        return int(count(after)) - int(count(before))

    assert grown(lambda statistics: statistics["inference_count"]) == 6
    assert grown(lambda statistics: statistics["execution_count"]) == 2
    for part in ("success", "queue", "compute_infer"):
        assert grown(lambda statistics, part=part: statistics["inference_stats"][part]["count"]) == 2
    assert grown(lambda statistics: statistics["inference_stats"]["compute_infer"]["ns"]) > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_models_are_unloaded_and_loaded(triton_server: Answers, protocol: str) -> None:
    before, without, again = triton_server["repository"][protocol]
    assert before == again == ["READY", True]
    assert without[0] in ("UNLOADING", "UNAVAILABLE")
    assert without[1] is False
    assert triton_server["load_of_no_model"][protocol]["status"] == UNKNOWN[protocol]
