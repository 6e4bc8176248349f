"""tritonclient infers (HTTP and gRPC, blocking and asyncio) on a live Ferry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.official_clients.environment import Answers

PROTOCOLS = ["rest", "grpc"]
#: An HTTP status, and the gRPC status for the same.
BAD = {"rest": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}
UNKNOWN = {"rest": "404", "grpc": "StatusCode.NOT_FOUND"}
LATE = {"rest": "504", "grpc": "StatusCode.DEADLINE_EXCEEDED"}


def probabilities(triton: Answers) -> Any:
    return triton["http_binary"]["digits"]["probabilities"]


def test_compressed_bodies_both_ways(triton: Answers) -> None:
    got = {**triton["http_compressed"], **triton["grpc_compressed"]}
    assert len(got) == 6
    for how, array in got.items():
        assert array.tobytes() == probabilities(triton).tobytes(), how


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requested_outputs(triton: Answers, protocol: str) -> None:
    outputs = triton["requested_outputs"][protocol]
    assert list(outputs) == ["product"]
    assert outputs["product"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_classification(triton: Answers, protocol: str) -> None:
    classes = triton["classification"][protocol]
    expected = probabilities(triton)
    best = np.argsort(-expected, axis=1)[:, :2]
    assert classes.shape == best.shape
    for row, indices in enumerate(best):
        texts = [text.decode().split(":") for text in classes[row]]
        assert [int(index) for _, index in texts] == indices.tolist()
        np.testing.assert_allclose([float(value) for value, _ in texts], expected[row][indices], atol=1e-6)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_request_id_comes_back(triton: Answers, protocol: str) -> None:
    assert triton["request_id"][protocol] == "order 66"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_version_and_signature(triton: Answers, protocol: str) -> None:
    assert triton["version_and_signature"][protocol].tolist() == [2.0, 10.0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_timeout(triton: Answers, protocol: str) -> None:
    assert triton["timeout_in_time"][protocol].tolist() == [2.5]
    assert triton["timeout_passed"][protocol]["status"] == LATE[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("model", UNKNOWN, "nope"),
        ("version", UNKNOWN, "9"),
        ("input", BAD, "'z'"),
        ("output", BAD, "'z'"),
        ("dtype", BAD, "FP32"),
        ("shape", BAD, "[1,1]"),
        ("sequence", BAD, "sequence_id"),
    ],
)
def test_rejections(triton: Answers, protocol: str, what: str, status: dict[str, str], words: str) -> None:
    rejection = triton["rejections"][protocol][what]
    assert rejection["status"] == status[protocol]
    assert words in rejection["text"]


@pytest.mark.parametrize("how", ["http_async", "grpc_async"])
def test_many_at_a_time(triton: Answers, how: str) -> None:
    assert triton[how] == [number / 2 + 2 for number in range(16)]


def test_a_stream_survives_a_rejected_request(triton: Answers) -> None:
    first, rejected, last = triton["grpc_stream"]
    assert (first, last) == (["0", 2.5], ["2", 2.5])
    assert "nope" in rejected


def test_stream_keeps_the_order(triton: Answers) -> None:
    assert triton["grpc_aio_stream"] == [number / 2 + 2 for number in range(20)]
