"""A file is tried in a child first, which is light, bounded, and always ends."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.litert import crash_trial
from app.runtimes.litert.crash_trial import Tried, try_in_child
from tests.support import savedmodels
from tests.support.tflite.tflite_models import convert, converted


def test_a_good_file_answers_in_the_child() -> None:
    assert try_in_child(converted(savedmodels.make_half_plus_two), 1) == Tried(
        frozenset({"serving_default", "regress_x_to_y", "classify_x_to_y"}), ""
    )


def test_a_file_that_takes_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_trial, "_LIMIT_S", 3)

    def forever(x: Any) -> Any:
        return {"y": tf.while_loop(lambda y: tf.reduce_all(y < 1.0), lambda y: (y * 0.5,), (x,))[0]}

    tried = try_in_child(convert(forever, tf.TensorSpec([1], tf.float32, name="x")), 1)
    called = "it called signature 'serving_default' with zeros"
    assert tried.fault == f"LiteRT was given up while {called}: it took longer than 3 s, or too much memory"


def test_the_child_imports_no_tensorflow() -> None:
    program = "import sys; import app.runtimes.litert.crash_trial; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tensorflow", "keras", "fastapi", "ai_edge_litert"}.intersection(modules)
