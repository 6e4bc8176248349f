"""Variants of real SavedModels: what is chosen, remembered, rejected, and given back."""

import gc
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.time_budget import TimeBudget
from app.runtime import VariantChoice, VariantOptions
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.variants.variant_search import VariantSearch
from tests.support import savedmodels
from tests.support.garbage import alive, no_collection

DEFAULT = "serving_default"


def tuned(
    path: Path, sizes: Sequence[int] = (1, 4), search_s: float = inf, **options: Any
) -> tuple[SavedModel, dict[tuple[str, int], str]]:
    model = SavedModel(path, VariantOptions(**options))
    return model, chosen(model.tune(sizes, lambda *_: None, TimeBudget(search_s)))


def chosen(choices: Sequence[VariantChoice]) -> dict[tuple[str, int], str]:
    return {(choice.signature, choice.batch_size): choice.variant for choice in choices}


def saved(path: Path, function: Callable[..., Any], **signatures: Any) -> Path:
    module = tf.Module()
    module.functions = {DEFAULT: function, **signatures}
    module.state = getattr(function, "state", None)
    tf.saved_model.save(module, str(path), signatures=module.functions)
    return path


FLOATS = [tf.TensorSpec([None], tf.float32, name="x")]


@pytest.mark.parametrize("wanted", ["plain", "frozen", "inline", "xla"])
def test_a_wanted_variant_is_used_at_every_size(tmp_path: Path, wanted: str) -> None:
    savedmodels.make_image_net(tmp_path)
    _, variants = tuned(tmp_path, wanted=wanted)
    assert variants == {(DEFAULT, 1): wanted, (DEFAULT, 4): wanted}


def test_auto_searches_remembers_and_recalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    savedmodels.make_image_net(tmp_path / "1")
    options: dict[str, Any] = {"wanted": "auto", "cache": tmp_path / "cache"}
    model = SavedModel(tmp_path / "1", VariantOptions(**options))
    reports: list[tuple[int, int, str]] = []
    choices = model.tune((1, 4), lambda *report: reports.append(report), TimeBudget(inf))
    assert len(choices) == 2
    assert all(choice.speed_up >= 1 for choice in choices)
    assert any("trying frozen" in what for _, _, what in reports)

    monkeypatch.setattr(VariantSearch, "choose_fastest", None)  # a search would fail
    again = SavedModel(tmp_path / "1", VariantOptions(**options))
    assert again.tune((1, 4), lambda *_: None, TimeBudget(inf)) == choices


def test_a_search_that_had_too_little_time_is_recalled_as_such(tmp_path: Path) -> None:
    """So that the rest is searched at the second start, too, if it was not before."""
    savedmodels.make_half_plus_two(tmp_path / "1")
    for _ in range(2):
        model, budget = SavedModel(tmp_path / "1", VariantOptions("auto", cache=tmp_path / "c")), TimeBudget(1e-9)
        model.tune((1, 4), lambda *_: None, budget)
        assert budget.short


def test_what_was_remembered_for_another_search_does_not_count(tmp_path: Path) -> None:
    savedmodels.make_half_plus_two(tmp_path / "1")
    cache = tmp_path / "cache"
    for options in ({}, {"search_s": 9.0}):
        tuned(tmp_path / "1", wanted="auto", cache=cache, **options)
    tuned(tmp_path / "1", (1, 2), wanted="auto", cache=cache)
    assert len(list(cache.iterdir())) == 3


def test_a_damaged_memory_is_replaced(tmp_path: Path) -> None:
    savedmodels.make_half_plus_two(tmp_path / "1")
    tuned(tmp_path / "1", wanted="auto", cache=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    text = file.read_text()
    for damage in ("", "[]"):
        file.write_text(damage)
        tuned(tmp_path / "1", wanted="auto", cache=tmp_path / "cache")
        assert len(file.read_text()) > len(text) / 2


def test_without_a_cache_auto_searches_all_the_same(tmp_path: Path) -> None:
    savedmodels.make_half_plus_two(tmp_path)
    assert len(tuned(tmp_path, wanted="auto")[1]) == 6


@pytest.mark.parametrize("wanted", ["auto", "frozen", "inline", "xla"])
def test_a_model_that_counts_is_left_alone(tmp_path: Path, wanted: str, caplog: pytest.LogCaptureFixture) -> None:
    savedmodels.make_counter(tmp_path)
    with caplog.at_level(logging.INFO):
        model, variants = tuned(tmp_path, wanted=wanted)
    assert set(variants.values()) == {"plain"}
    assert "it keeps state: AssignAddVariableOp" in caplog.text
    assert [model.run(DEFAULT, {"x": np.zeros(1, np.float32)}, ())["calls"].item() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("wanted", ["auto", "frozen", "inline", "xla"])
def test_a_model_that_draws_random_numbers_goes_on_doing_so(tmp_path: Path, wanted: str) -> None:
    noise = tf.function(lambda x: {"y": x + tf.random.uniform(tf.shape(x))}, input_signature=FLOATS)
    model, variants = tuned(saved(tmp_path, noise), wanted=wanted)
    assert set(variants.values()) == {"plain"}
    answers = {model.run(DEFAULT, {"x": np.zeros(1, np.float32)}, ())["y"].item() for _ in range(5)}
    assert len(answers) > 1


@pytest.mark.parametrize("wanted", ["auto", "frozen", "inline", "xla"])
def test_a_variable_that_another_signature_writes_is_not_frozen(tmp_path: Path, wanted: str) -> None:
    factor = tf.Variable(2.0)
    scale = tf.function(lambda x: {"y": x * factor}, input_signature=FLOATS)
    scale.state = factor
    learn = tf.function(lambda x: {"now": factor.assign(x[0])}, input_signature=FLOATS)
    model, _ = tuned(saved(tmp_path, scale, learn=learn), wanted=wanted)
    one = {"x": np.ones(1, np.float32)}
    assert model.run(DEFAULT, one, ())["y"].tolist() == [2]
    model.run("learn", {"x": np.full(1, 7, np.float32)}, ())
    assert model.run(DEFAULT, one, ())["y"].tolist() == [7]


def test_sizes_not_tuned_and_subsets_of_outputs_run_plain(tmp_path: Path) -> None:
    savedmodels.make_many_outputs(tmp_path)
    model, variants = tuned(tmp_path, (2,), wanted="xla")
    assert variants == {(DEFAULT, 2): "xla"}
    for rows in (0, 1, 2, 3):
        for outputs in ((), ("y3",), ("y5", "y0", "y4", "y3", "y2", "y1")):
            x = np.arange(rows, dtype=np.float32)
            answer = model.run(DEFAULT, {"x": x}, outputs)
            assert tuple(answer) == (outputs or tuple(f"y{n}" for n in range(6)))
            assert all(array.tolist() == (x + int(name[1:])).tolist() for name, array in answer.items())


@pytest.mark.parametrize("wanted", ["frozen", "inline", "xla"])
def test_threads_get_their_own_answers_from_a_variant(tmp_path: Path, wanted: str) -> None:
    savedmodels.make_many_outputs(tmp_path)
    model, variants = tuned(tmp_path, (1, 2, 3), wanted=wanted)
    assert set(variants.values()) == {wanted}

    def calls(thread: int) -> None:
        for turn in range(100):
            x = np.full(thread, 1000 * thread + turn, np.float32)
            answer = model.run(DEFAULT, {"x": x}, ())
            assert all(array.tolist() == (x + int(name[1:])).tolist() for name, array in answer.items())

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(calls, thread) for thread in (1, 2, 3, 1, 2, 3)]:
            done.result()


def test_inputs_whose_rows_disagree_are_rejected_as_ever(tmp_path: Path) -> None:
    savedmodels.make_several_inputs(tmp_path)
    model, _ = tuned(tmp_path, (1, 2), wanted="xla")
    inputs = {"a": np.zeros([2, 2], np.float32), "b": np.zeros([3, 2], np.float32)}
    with pytest.raises(Exception, match=r"Incompatible shapes|required broadcastable shapes"):
        model.run(DEFAULT, inputs, ())


@pytest.mark.parametrize("wanted", ["auto", "frozen", "inline", "xla"])
def test_a_search_and_the_end_of_its_variants_need_no_collection(tmp_path: Path, wanted: str) -> None:
    savedmodels.make_image_net(tmp_path)
    tuned(tmp_path, wanted=wanted)[0].close()  # what XLA compiled is kept for the next load
    with no_collection() as collections:
        before = alive(tf.Graph)
        model, _ = tuned(tmp_path, wanted=wanted)
        model.close()
        assert alive(tf.Graph) == before
    assert not collections


def test_close_gives_the_constants_back_too(tmp_path: Path) -> None:
    savedmodels.make_image_net(tmp_path)
    model, _ = tuned(tmp_path, wanted="frozen")
    alive = graphs()
    model.close()
    assert graphs() < alive


def graphs() -> int:
    gc.collect()
    return sum(isinstance(thing, tf.Graph) for thing in gc.get_objects())
