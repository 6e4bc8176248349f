"""Requests of different lengths to a real model, from the setting to the answer and the health page."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import InvalidRequest
from app.inference import InferenceRequest
from app.server import Server
from app.settings import Settings
from tests import savedmodels

RANDOM = np.random.default_rng(2)
LENGTHS = (5, 12, 1, 7, 9, 11, 38, 30, 4, 12)
BUCKET_ROWS = (4, 3, 4, 4, 1, 3, 1, 1, 4, 3)
TOKENS = [RANDOM.integers(1, 20, (1, length), np.int32) for length in LENGTHS]


def served(folder: Path, *batches: list[Any], signature: str = "serving_default", **more: Any) -> tuple[Any, ...]:
    """For each batch sent at once its answers; the health page."""

    async def main() -> tuple[Any, ...]:
        values = {"max_batch_size": 16, "grpc_port": 0, "execution_variant": "plain", **more}
        server = Server(Settings(models=folder, **values))
        await server.start()
        assert server._starting is not None
        await server._starting
        model = server.repository.resolve("net")
        answers = []
        for batch in batches:
            requests = [InferenceRequest({"tokens": tokens}, signature) for tokens in batch]
            answers.append(await asyncio.gather(*map(model.infer, requests), return_exceptions=True))
        summary = await server.summary()
        await server.stop()
        assert (await server.summary())["mixed_shapes"] == {}
        return *answers, summary["mixed_shapes"]

    return asyncio.run(main())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    savedmodels.make_attention(folder / "net" / "1")
    return folder


def check_equal(answer: Any, alone: Any) -> None:
    assert answer.outputs.keys() == alone.outputs.keys()
    for name, output in alone.outputs.items():
        np.testing.assert_allclose(answer.outputs[name], output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", ["plain", "frozen"])
def test_requests_of_different_lengths_share_calls_and_get_the_answers_they_get_alone(
    folder: Path, variant: str
) -> None:
    together, *each, _, shapes = served(folder, TOKENS, *[[tokens] for tokens in TOKENS], [], execution_variant=variant)
    for answer, (alone,), tokens in zip(together, each, TOKENS, strict=True):
        assert answer.outputs["each"].shape == (1, tokens.shape[1], 4)
        check_equal(answer, alone)
        assert alone.timing.rows == 1
    assert all(answer.timing.rows >= rows for answer, rows in zip(together, BUCKET_ROWS, strict=True))
    assert shapes["net/1"]["serving_default"] == "padded: tokens[?,tokens.1] -> each[?,tokens.1,4], pooled[?,4]"


def test_a_model_that_is_blind_to_padding_shares_calls_among_equal_shapes_only(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        together, *_, shapes = served(folder, TOKENS, signature="unmasked")
    assert [answer.timing.rows for answer in together] == [1, 2, 1, 1, 1, 1, 1, 1, 1, 2]
    text = "only equal shapes share a batch: padding changes the model's answers"
    assert shapes["net/1"]["unmasked"] == text
    assert caplog.text.count(f"Model net version 1, signature 'unmasked': {text}") == 1


def test_a_value_of_one_model_is_not_anothers(folder: Path) -> None:
    _, shapes = served(folder, [], pad_values={"tokens": 0, "net/tokens": 3})
    assert "padding changes" in shapes["net/1"]["serving_default"]
    _, shapes = served(folder, [], pad_values={"tokens": 0, "other/tokens": 3})
    assert shapes["net/1"]["serving_default"].startswith("padded")


def test_one_may_insist(folder: Path) -> None:
    together, _ = served(folder, TOKENS, signature="unmasked", pad_shapes="always", shape_buckets=[40])
    assert {answer.timing.rows for answer in together} == {10}


def test_or_forbid(folder: Path) -> None:
    together, shapes = served(folder, TOKENS, pad_shapes="never")
    assert max(answer.timing.rows for answer in together) == 2
    assert shapes == {}


def test_what_only_the_longest_is_guilty_of_befalls_nobody_else(folder: Path) -> None:
    """41 tokens are more than the model has positions for; no signature tells, and nobody is padded that far."""
    tokens = [*TOKENS, np.ones((1, 41), np.int32), np.full((1, 12), 99, np.int32)]
    together, *each, _, _ = served(folder, tokens, *[[one] for one in tokens], [], shape_buckets=[64])
    for answer, (alone,) in zip(together[:-2], each[:-2], strict=True):
        check_equal(answer, alone)
    assert all(isinstance(answer, InvalidRequest) for answer in together[-2:])


def test_a_large_request_is_cut_and_shares_its_last_part(folder: Path) -> None:
    many = np.repeat(TOKENS[1], 21, axis=0)
    (large, small), (alone,), _ = served(folder, [many, TOKENS[4]], [TOKENS[4]])
    assert large.outputs["each"].shape == (21, 12, 4)
    assert small.timing.rows > 1
    check_equal(small, alone)
