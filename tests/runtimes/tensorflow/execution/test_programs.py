"""Reloads of a model take no more memory for what XLA compiled."""

import logging
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.time_budget import TimeBudget
from app.runtime import CompiledPrograms, CompilingRuntime, RuntimeOptions, VariantOptions, create_runtime
from app.runtimes.tensorflow.execution.programs import MOST_COMPILED, PROGRAMS, Programs, TooManyPrograms
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.support import savedmodels


def program(*captured: object) -> Any:
    return SimpleNamespace(captured_inputs=captured)


def test_what_was_compiled_serves_the_next_load_of_the_same_content() -> None:
    programs = Programs()
    first = programs.get("content", program)
    assert programs.get("content", program) is first
    assert programs.get("other", program) is not first
    assert programs.compiled == 2


def test_what_holds_variables_of_a_model_serves_no_other() -> None:
    programs = Programs()
    assert programs.get("content", lambda: program("variable")) is not programs.get("content", program)
    assert programs.get(None, program) is not programs.get(None, program)


def test_the_longest_unused_is_kept_no_more() -> None:
    programs = Programs(most_kept=2)
    first, second = programs.get("a", program), programs.get("b", program)
    assert programs.get("a", program) is first
    programs.get("c", program)
    assert programs.get("a", program) is first
    assert programs.get("b", program) is not second


def test_the_number_of_compilations_is_bounded_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    programs = Programs(most_compiled=2)
    first = programs.get("a", program)
    with caplog.at_level(logging.WARNING):
        programs.get("b", program)
        for _ in range(2):
            with pytest.raises(TooManyPrograms, match="2 programs"):
                programs.get("c", program)
    assert programs.get("a", program) is first
    assert len(caplog.messages) == 1


def xla(path: Path) -> SavedModel:
    model = SavedModel(path, VariantOptions("xla"))
    choices = model.tune((1, 2), lambda *_: None, TimeBudget(inf))
    assert {choice.variant for choice in choices} == {"xla"}
    return model


def test_the_runtime_tells_how_much_was_compiled() -> None:
    runtime = create_runtime("tensorflow", RuntimeOptions())
    assert isinstance(runtime, CompilingRuntime)
    assert runtime.compiled_programs == (PROGRAMS.compiled, MOST_COMPILED)
    assert [CompiledPrograms(number, 5).consequence for number in (4, 5)] == [
        "", "what is loaded from now on is not compiled",
    ]  # fmt: skip


def test_a_reload_compiles_nothing(tmp_path: Path) -> None:
    savedmodels.make_image_net(tmp_path / "1")
    xla(tmp_path / "1").close()
    compiled = PROGRAMS.compiled
    model = xla(tmp_path / "1")
    assert PROGRAMS.compiled == compiled
    name, spec = next(iter(model.signatures["serving_default"].inputs.items()))
    shape: Any = spec.shape
    inputs = {name: np.ones((2, *shape[1:]), spec.dtype)}
    plain = SavedModel(tmp_path / "1").run("serving_default", inputs, ())
    answer = model.run("serving_default", inputs, ())
    assert all(np.allclose(answer[each], plain[each], rtol=1e-4) for each in plain)


def test_a_reload_of_an_embedding_compiles_nothing_and_rejects_as_before(tmp_path: Path) -> None:
    """The check beside the compiled code borrows no variable either."""
    module = tf.Module()
    module.table = tf.Variable(tf.reshape(tf.range(8.0), [4, 2]))
    spec = tf.TensorSpec([None, 3], tf.int32, name="x")
    module.f = tf.function(lambda x: {"y": tf.gather(module.table, x)}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.f)
    xla(tmp_path / "1").close()
    compiled = PROGRAMS.compiled
    model = xla(tmp_path / "1")
    assert PROGRAMS.compiled == compiled
    assert model.run("serving_default", {"x": np.int32([[1, 2, 3]])}, ())["y"][0, 2].tolist() == [6, 7]
    with pytest.raises(Exception, match="is not in"):
        model.run("serving_default", {"x": np.int32([[1, 2, 4]])}, ())


def scaled(path: Path, factor: float) -> SavedModel:
    module = tf.Module()
    module.factor = tf.Variable(factor)
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")
    module.f = tf.function(lambda x: {"y": x * module.factor}, input_signature=[spec])
    tf.saved_model.save(module, str(path), signatures=module.f)
    return xla(path)


def test_other_content_of_the_same_shape_is_not_confused(tmp_path: Path) -> None:
    inputs = {"x": np.ones((1, 3), np.float32)}
    answers = [scaled(tmp_path / str(factor), factor).run("serving_default", inputs, ())["y"] for factor in (1.0, 2.0)]
    assert [answer.tolist() for answer in answers] == [[[1, 1, 1]], [[2, 2, 2]]]
