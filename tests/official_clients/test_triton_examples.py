"""Triton's own Python examples on a live Ferry, over HTTP and gRPC. Their oracle is what the examples check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.official_clients.environment import Answers

PROTOCOLS = ["rest", "grpc"]
FIRST, SECOND = np.arange(16).reshape(1, 16), np.ones((1, 16))
SUM, DIFFERENCE = FIRST + SECOND, FIRST - SECOND

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def same(arrays: Any, *expected: Any) -> bool:
    return len(arrays) == len(expected) and all(map(np.array_equal, arrays, expected))


@each_protocol
def test_health_and_metadata(triton_examples: Answers, protocol: str) -> None:
    answer = triton_examples["health_metadata"][protocol]
    assert answer["name"] == "simple"
    assert "Request for unknown model" in answer["unknown"]


@each_protocol
def test_infer(triton_examples: Answers, protocol: str) -> None:
    for arrays in triton_examples["infer"][protocol]:
        assert same(arrays, SUM, DIFFERENCE)
    assert same(triton_examples["string_infer"][protocol], SUM[0], DIFFERENCE[0])


@each_protocol
def test_model_control(triton_examples: Answers, protocol: str) -> None:
    answer = triton_examples["model_control"][protocol]
    assert "simple" in answer["names"]
    assert "failed to load" in answer["wrong"]
    assert answer["largest"] == [16, 32, 16]
    assert np.array_equal(answer["sum"], SUM)
    assert answer["ready"] == [False, True]
    assert "failed to load" in answer["unknown"]
    assert "is not supported" in answer["files"]


@each_protocol
def test_shared_memory(triton_examples: Answers, protocol: str) -> None:
    assert same(triton_examples["shm"][protocol], SUM, DIFFERENCE)
    assert triton_examples["cuda_shm"][protocol]["regions"] == []
    unsupported = {"rest": "501", "grpc": "StatusCode.UNIMPLEMENTED"}
    assert triton_examples["cuda_shm"][protocol]["register"] == unsupported[protocol]


@each_protocol
def test_objects_are_reused(triton_examples: Answers, protocol: str) -> None:
    assert same(triton_examples["reuse_infer_objects"][protocol], SUM, FIRST + SUM, SUM)


@each_protocol
def test_image_client(triton_examples: Answers, protocol: str) -> None:
    expected = [
        [["1.000000", "1", "green"], ["0.000000", "0", "red"], ["0.000000", "2", "blue"]],
        [["1.000000", "2", "blue"], ["0.000000", "0", "red"], ["0.000000", "1", "green"]],
    ]
    assert triton_examples["image_client"][protocol] == [expected] * (2 if protocol == "grpc" else 1)


@each_protocol
def test_statistics_tell_the_parts_of_the_time(triton_examples: Answers, protocol: str) -> None:
    told = triton_examples["statistics"][protocol]
    parts = [told["inference_stats"][f"compute_{part}"] for part in ("input", "infer", "output")]
    assert len({int(part["count"]) for part in parts}) == 1
    assert all(int(part["ns"]) > 0 for part in parts)
    assert sum(int(each["compute_infer"]["count"]) for each in told["batch_stats"]) == int(told["execution_count"])
