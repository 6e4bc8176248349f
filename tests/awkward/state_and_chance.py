"""Models whose answers depend on calls before, or on chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.awkward.awkward_model import Asked, AwkwardModel, Outputs, floats, model, of, save


def counter(path: Path) -> None:
    """Each execution counts: exactly one for each request, and no padding rows."""
    module = tf.Module()
    module.calls, module.rows = tf.Variable(0), tf.Variable(0)

    def call(x: Any) -> Any:
        size = tf.shape(x)[0]
        rows, calls = module.rows.assign_add(size), module.calls.assign_add(1)
        return {"calls": tf.fill([size], calls), "rows": tf.fill([size], rows), "same": tf.identity(x)}

    save(path, call, of("x", None), module=module)


def _each_counted_once(asked: Sequence[Asked], answers: Sequence[Outputs]) -> None:
    calls = sorted({int(each) for answer in answers for each in answer["calls"]})
    filled = [each for each in asked if len(each.inputs["x"])]
    assert len(calls) == len(filled), "every request is a call of its own"
    assert calls[-1] - calls[0] < len(asked), "no call but theirs, while they were answered"
    rows = [int(answer["rows"][0]) for answer in answers if len(answer["rows"])]
    assert max(rows) - min(rows) < sum(len(each.inputs["x"]) for each in asked), "no row but theirs"
    for each, answer in zip(asked, answers, strict=True):
        assert len(set(answer["calls"].tolist())) <= 1
        np.testing.assert_array_equal(answer["same"], each.inputs["x"])


def random_numbers(path: Path) -> None:
    """Every answer is drawn anew: none may be given twice, and padding may not repeat one."""
    save(path, lambda x: {"y": tf.random.uniform(tf.shape(x), dtype=tf.float64)}, of("x", None))


def random_of_a_seed(path: Path) -> None:
    """Drawn from a generator that starts at a seed: the generator's state is in the graph."""
    save(path, lambda x: {"y": tf.random.uniform(tf.shape(x), seed=5, dtype=tf.float64)}, of("x", None))


def random_generator(path: Path) -> None:
    """Drawn from tf.random.Generator, whose state is a variable."""
    module = tf.Module()
    module.generator = tf.random.Generator.from_seed(3)
    save(path, lambda x: {"y": module.generator.uniform(tf.shape(x), dtype=tf.float64)}, of("x", None), module=module)


def _drawn_anew(asked: Sequence[Asked], answers: Sequence[Outputs]) -> None:
    for each, answer in zip(asked, answers, strict=True):
        assert answer["y"].shape == each.inputs["x"].shape
    drawn = np.concatenate([answer["y"] for answer in answers])
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert len(set(drawn.tolist())) == len(drawn)


def dropout_by_content(path: Path) -> None:
    """Random numbers of a seed that the request sends (stateless): equal requests have equal answers."""

    def call(x: Any, seed: Any) -> Any:
        noise = tf.map_fn(lambda one: tf.random.stateless_uniform([2], one), seed, fn_output_signature=tf.float32)
        return {"y": x[:, tf.newaxis] + noise}

    save(path, call, of("x", None), of("seed", None, 2, dtype=tf.int32))


def shared_variable(path: Path) -> None:
    """One signature writes a variable that another reads: a write is executed once, and a read is not cached."""
    module = tf.Module()
    module.value = tf.Variable(0.0)
    x = of("x", None)

    def write(x: Any) -> Any:
        return {"total": tf.fill(tf.shape(x), module.value.assign_add(tf.reduce_sum(x)))}

    module.write = tf.function(write, input_signature=[x])
    module.read = tf.function(lambda x: {"total": x * 0.0 + module.value}, input_signature=[x])
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.write, "read": module.read})


def _written_once(asked: Sequence[Asked], answers: Sequence[Outputs]) -> None:
    written = [answer["total"][0] for each, answer in zip(asked, answers, strict=True) if each.signature != "read"]
    sent = [each.inputs["x"].sum() for each in asked if each.signature != "read"]
    steps = {float(total) for total in written}
    assert len(steps) == len(sent), "no write shared a call"
    assert max(steps) - min(steps) <= sum(sent) - min(sent), "no write was made twice"
    for each, answer in zip(asked, answers, strict=True):
        assert len(answer["total"]) == len(each.inputs["x"])
        assert len(set(answer["total"].tolist())) == 1


_WITHOUT_NAN = [{"x": floats(*range(rows))} for rows in (1, 2, 3, 1, 4, 1)]

MODELS: Sequence[AwkwardModel] = (
    model(counter, [*_WITHOUT_NAN, {"x": floats()}], _each_counted_once),
    model(random_numbers, _WITHOUT_NAN, _drawn_anew),
    model(random_of_a_seed, _WITHOUT_NAN, _drawn_anew),
    model(random_generator, _WITHOUT_NAN, _drawn_anew),
    model(
        dropout_by_content,
        [{"x": floats(*range(rows)), "seed": np.full((rows, 2), rows, np.int32)} for rows in (1, 2, 3, 2, 1)],
    ),
    model(
        shared_variable,
        [Asked({"x": floats(*[1.0] * rows)}, name) for rows in (1, 2, 3) for name in ("serving_default", "read")],
        _written_once,
    ),
)
