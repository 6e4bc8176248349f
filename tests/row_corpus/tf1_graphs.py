"""TensorFlow 1: sessions, reference variables, loops of Merge and NextIteration, switched branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from tests.row_corpus.doors import example_of
from tests.row_corpus.row_case import WIDTH, RowCase, halves, texts

tf1 = tf.compat.v1

Build = Callable[[Any], Any]


@contextmanager
def _first_control_flow() -> Iterator[None]:
    """Loops and branches become Enter, Merge, Switch and NextIteration."""
    tf1.disable_control_flow_v2()
    try:
        yield
    finally:
        tf1.enable_control_flow_v2()


def _make(build: Build) -> Callable[[Path], None]:
    """x [rows, 4] of a tf.Example with a required feature; y as `build` gives it."""

    def make(path: Path) -> None:
        with _first_control_flow(), tf.Graph().as_default(), tf1.Session() as session:
            examples = tf1.placeholder(tf.string, [None], name="examples")
            x = tf1.parse_example(examples, {"x": tf1.FixedLenFeature([WIDTH], tf.float32)})["x"]
            y = build(x)
            session.run(tf1.global_variables_initializer())
            builder = tf1.saved_model.Builder(str(path))
            signature = tf1.saved_model.predict_signature_def({"examples": examples}, {"y": y})
            builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
            builder.save()

    return make


def _examples(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    return {"examples": texts([example_of(x=[float(each) for each in row]) for row in halves(rng, rows, WIDTH)])}


def _weights() -> Any:
    values = np.arange(WIDTH * 2, dtype=np.float32).reshape(WIDTH, 2) / 4
    return tf1.get_variable("weights", initializer=values, use_resource=False)


def _softmax(axis: int) -> Build:
    return lambda x: tf.nn.softmax(tf.matmul(x, _weights()), axis=axis)


def _normalised(*, training: bool) -> Build:
    def build(x: Any) -> Any:
        if training:
            mean, variance = tf.nn.moments(x, [0])
        else:
            mean, variance = (tf1.get_variable(name, initializer=[2.0] * WIDTH) for name in ("mean", "variance"))
        return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)

    return build


def _halved(*, all_rows: bool) -> Build:
    def step(y: Any) -> Any:
        return [y / 2.0 if all_rows else tf.where(tf.abs(y) > 1.0, y / 2.0, y)]

    return lambda x: tf1.while_loop(lambda y: tf.reduce_any(tf.abs(y) > 1.0), step, [x**3])


def _carried(*, carries: bool) -> Build:
    """A while over rows with TensorArrays of TensorFlow 1."""

    def build(x: Any) -> Any:
        rows = tf.shape(x)[0]
        out = tf.TensorArray(tf.float32, rows)

        def step(i: Any, total: Any, out: Any) -> Any:
            row = x[i]
            return i + 1, total + row if carries else total, out.write(i, total + row)

        return tf1.while_loop(lambda i, *_: i < rows, step, (0, tf.zeros([WIDTH]), out))[2].stack()

    return build


def _branch_of_all(x: Any) -> Any:
    return tf1.cond(tf.reduce_any(x > 3.0), lambda: x * 10.0, lambda: x + 1.0)


def _selected(x: Any) -> Any:
    return tf1.where(x > 3.0, x * 10.0, x + 1.0)


def _time(*, shared: bool) -> Build:
    """Twice halved over columns: a loop of a fixed number of steps."""

    def step(t: Any, state: Any) -> Any:
        state = state * 0.5 + 1.0
        return t + 1, state - tf.reduce_mean(state, 0) if shared else state

    return lambda x: tf1.while_loop(lambda t, _: t < 3, step, (0, x))[1]


def _pair(name: str, mixing: Build, twin: Build, why: str, why_not: str) -> tuple[RowCase, RowCase]:
    return (
        RowCase(name=f"tf1_{name}", make=_make(mixing), draw=_examples, mixes=True, why=why),
        RowCase(name=f"tf1_{name}_of_a_row", make=_make(twin), draw=_examples, mixes=False, why=why_not),
    )


CASES: Sequence[RowCase] = (
    *_pair("softmax", _softmax(0), _softmax(1), "softmax along axis 0", "softmax along axis 1"),
    *_pair(
        "normalised", _normalised(training=True), _normalised(training=False), "the batch's moments", "trained moments"
    ),
    *_pair(
        "halved",
        _halved(all_rows=True),
        _halved(all_rows=False),
        "a loop of Merge and NextIteration until all rows are small",
        "the same, and a row that is done stays as it is",
    ),
    *_pair("carried", _carried(carries=True), _carried(carries=False), "a loop carries a sum", "it carries zeros"),
    *_pair("branch", _branch_of_all, _selected, "a Switch by any row", "a choice for each number"),
    *_pair("time", _time(shared=True), _time(shared=False), "a mean over rows within a loop", "no row sees another"),
)
