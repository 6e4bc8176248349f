"""KServe's inference clients (REST by V1 and by V2, gRPC) against a live Ferry."""

from __future__ import annotations

import numpy as np

from tests.official_clients.environment import Answers


def test_v1_predicts(kserve: Answers) -> None:
    expected = kserve["kserve_binary"]["digits"]["probabilities"]
    assert np.array(kserve["v1_predict"]["predictions"], np.float32).tobytes() == expected.tobytes()


def test_v1_rejects_an_unknown_model(kserve: Answers) -> None:
    assert kserve["v1_rejection"]["status"] == 404
    assert "Servable not found for request: Latest(nope)" in kserve["v1_rejection"]["text"]


def test_health(kserve: Answers) -> None:
    assert kserve["rest_health"] == [True, True, True, False]
    *known, unknown = kserve["grpc_health"]
    assert known == [True, True, True]
    assert unknown == {"status": "OK", "text": "False"}


def test_rejections(kserve: Answers) -> None:
    for what, http, grpc, words in (("dtype", 400, "INVALID_ARGUMENT", "FP32"), ("model", 404, "NOT_FOUND", "nope")):
        by_rest, by_grpc = kserve["rejections"][what]
        assert (by_rest["status"], by_grpc["status"]) == (http, grpc)
        assert words in by_rest["text"]
        assert words in by_grpc["text"]


def test_request_id_comes_back(kserve: Answers) -> None:
    assert kserve["request_ids"] == ["order 66", "order 66"]
