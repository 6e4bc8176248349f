"""Requests of different lengths to a real model, from the setting to the answer and the health page."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.config.settings import Settings
from app.core.errors import InvalidRequest
from app.core.inference import InferenceRequest
from app.server.server import Server
from tests.every_protocol.live import all_waiting_rows
from tests.instrumentation.pages import document_of
from tests.support import savedmodels
from tests.support.waiting import HANG_S

RANDOM = np.random.default_rng(2)
LENGTHS = (5, 12, 1, 7, 9, 11, 38, 30, 4, 12)
BUCKET_ROWS = (4, 3, 4, 4, 1, 3, 1, 1, 4, 3)
TOKENS = [RANDOM.integers(1, 20, (1, length), np.int32) for length in LENGTHS]


def served(
    folder: Path, *batches: list[Any], signature: str = "serving_default", name: str = "net", **more: Any
) -> tuple[Any, ...]:
    """For each batch sent at once its answers; the health page. What is no dictionary of inputs are tokens."""

    async def main() -> tuple[Any, ...]:
        values = {"max_batch_size": 16, "grpc_port": 0, "execution_variant": "plain", "ready_when": "tuned"}
        # Who shares a call must not follow from measured costs and from what there was time to prove.
        values |= {"load_budget_s": HANG_S, "batches_in_flight": 1}
        values |= {"max_inline_ms": 0, **more}
        server = Server(Settings(models=folder, **values))
        await server.start()
        assert server._starting is not None
        await server._starting
        model = server.repository.resolve(name)
        answers = []
        for batch in batches:
            sent = [each if isinstance(each, dict) else {"tokens": each} for each in batch]
            requests = [InferenceRequest(dict(inputs), signature) for inputs in sent]
            answers.append(await asyncio.gather(*map(model.infer, requests), return_exceptions=True))
        summary = document_of(await server.summary())
        await server.stop()
        assert document_of(await server.summary())["mixed_shapes"] == {}
        return *answers, summary["mixed_shapes"]

    with all_waiting_rows():
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
    with caplog.at_level(logging.INFO):
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


def test_a_request_that_is_too_long_for_the_model_fails_alone(folder: Path) -> None:
    """41 tokens are more than the model has positions for; no signature says so, and no request is padded that far."""
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


# --- masks and lengths ---


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    savedmodels.make_masked(folder / "masked" / "1")
    return folder


MASKS = {"mask": "tokens", "masked/lengths": "tokens"}


def test_masks_and_lengths_that_callers_leave_out_are_the_true_ones(masked: Path) -> None:
    told = [
        {"tokens": each, "mask": np.ones(each.shape, np.int64), "lengths": np.array([each.shape[1]], np.int32)}
        for each in TOKENS
    ]
    together, *each, _, shapes = served(
        masked, TOKENS, *[[inputs] for inputs in told], [], name="masked", mask_inputs=MASKS
    )
    for answer, (alone,) in zip(together, each, strict=True):
        check_equal(answer, alone)
        assert alone.timing.rows == 1
    assert max(answer.timing.rows for answer in together) > 2
    assert shapes["masked/1"]["serving_default"].startswith("padded: lengths[?], mask[?,d1], tokens[?,d1]")


def test_requests_with_and_without_a_mask_share_calls(masked: Path) -> None:
    some = {"tokens": TOKENS[0], "mask": np.array([[1, 0, 0, 1, 0]]), "lengths": np.array([2], np.int32)}
    sent = [some, *TOKENS[3:6]]
    options: dict[str, Any] = {"name": "masked", "mask_inputs": MASKS, "shape_buckets": [16]}
    together, *each, _ = served(masked, sent, *[[one] for one in sent], **options)
    for answer, (alone,) in zip(together, each, strict=True):
        check_equal(answer, alone)
    assert {answer.timing.rows for answer in together} == {4}


def test_masks_that_are_not_declared_must_be_sent(masked: Path) -> None:
    (answer,), _ = served(masked, [TOKENS[0]], name="masked")
    assert isinstance(answer, InvalidRequest)
    assert "missing 'lengths', 'mask'" in str(answer)


def test_a_length_that_is_no_mask_input_is_taken_for_the_whole_as_padding_would_be(masked: Path) -> None:
    """Without the true length the model cannot tell: found at warm-up, by lengths beyond the row's own."""
    _, shapes = served(masked, [], name="masked", mask_inputs={"lengths": "tokens"}, pad_values={"mask": 1})
    assert "only equal shapes share a batch" in shapes["masked/1"]["serving_default"]


# --- outputs that are not of an input's size ---


@pytest.fixture(scope="module")
def strided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strided")
    savedmodels.make_strided(folder / "net" / "1")
    return folder


SOUNDS = [{"sound": RANDOM.random((1, length, 1), np.float32)} for length in (33, 40, 37, 34, 36, 35, 5, 6, 1, 40, 39)]


def test_outputs_of_strides_are_cut_to_what_each_would_get_alone(strided: Path) -> None:
    together, *each, _, shapes = served(strided, SOUNDS, *[[one] for one in SOUNDS], [])
    for answer, (alone,), sound in zip(together, each, SOUNDS, strict=True):
        if sound["sound"].shape[1] > 1:
            check_equal(answer, alone)
        else:
            assert isinstance(answer, InvalidRequest)  # and nobody else
    assert max(answer.timing.rows for answer in together[:6]) == 8
    assert (
        shapes["net/1"]["serving_default"]
        == "padded: sound[?,sound.1,1] -> twice[?,2*sound.1,1], valid[?,~1/2*sound.1,3]"
    )


def test_a_stride_that_begins_elsewhere_in_a_padded_row_is_found(strided: Path) -> None:
    """TensorFlow pads a convolution on both sides, more or less by the length being odd or even."""
    together, *each, _, shapes = served(strided, SOUNDS, *[[one] for one in SOUNDS], [], signature="same")
    assert shapes["net/1"]["same"] == "only equal shapes share a batch: padding changes the model's answers"
    for answer, (alone,) in zip(together, each, strict=True):
        check_equal(answer, alone)


# --- compiled buckets ---


def test_buckets_are_compiled_at_warm_up_and_nothing_is_afterwards(folder: Path) -> None:
    options: dict[str, Any] = {"shape_buckets": [8, 12, 50], "batch_sizes": [1, 4], "max_batch_size": 4}
    *plain, _ = served(folder, TOKENS, *[[one] for one in TOKENS], **options)
    *compiled, shapes = served(folder, TOKENS, *[[one] for one in TOKENS], execution_variant="xla", **options)
    text = shapes["net/1"]["serving_default"]
    assert text.endswith("; compiled for 8 (1, 4 rows), 12 (1, 4 rows)")  # the model has 40 positions
    assert "compiled" not in shapes["net/1"]["unmasked"]
    for some, others in zip(compiled, plain, strict=True):
        for answer, other in zip(some, others, strict=True):
            check_equal(answer, other)


def test_buckets_that_are_compiled_are_those_that_gain(folder: Path) -> None:
    options: dict[str, Any] = {"shape_buckets": [8, 40], "batch_sizes": [1, 16]}
    *answers, shapes = served(folder, TOKENS, execution_variant="auto", variant_cache=str(folder), **options)
    assert "each[?,tokens.1,4]" in shapes["net/1"]["serving_default"]
    assert all(
        answer.outputs["each"].shape == (1, tokens.shape[1], 4)
        for answer, tokens in zip(answers[0], TOKENS, strict=True)
    )
