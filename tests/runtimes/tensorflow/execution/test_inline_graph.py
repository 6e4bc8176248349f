"""Graphs that run in the thread that calls. What every variant must do is in test_variant.py."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import Array
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import INLINE, VariantMaker, VariantNotPossible
from tests.runtimes.tensorflow.execution.signature_functions import FLOAT32, function_of

#: The smallest number of the usual precision is 1.2e-38.
DENORMALS = np.full((2, 3), 1e-39, np.float32)


def inline(function: SignatureFunction, x: Array, **options: Any) -> Any:
    """How to call it inline with the shape of x."""
    maker = VariantMaker(function.signature, function.plain, **options)
    return function.prepare(maker.make(INLINE, {"x": x}).graph, {"x": x})


def affine() -> SignatureFunction:
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    return function_of(lambda x: x @ weights + 1.0)


def test_the_thread_that_calls_waits_for_no_other() -> None:
    x = np.ones((2, 3), np.float32)
    call = inline(affine(), x)
    call({"x": x})
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(100):
        call({"x": x})
    # Another thread that wants the interpreter may make it wait now and then; each call of plain waits.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 50


def test_threads_may_call_at_the_same_time() -> None:
    function = affine()
    call = inline(function, np.ones((2, 3), np.float32))

    def answer(value: int) -> Any:
        return call({"x": np.full((2, 3), value, np.float32)})["y"].tolist()

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(answer, range(400)))
    for value in (0, 7, 399):
        assert answers[value] == function.run_plain({"x": np.full((2, 3), value, np.float32)}, ())["y"].tolist()


@pytest.mark.parametrize("body", [tf.identity, lambda _: tf.constant([[1.0, 2.0, 3.0]])], ids=["input", "constant"])
def test_an_answer_is_neither_the_memory_of_an_input_nor_of_a_constant(body: Any) -> None:
    x = np.array([[1, 2, 3]], np.float32)
    call = inline(function_of(body), x)
    first = call({"x": x})["y"]
    first[:] = 9
    assert call({"x": x})["y"].tolist() == [[1, 2, 3]]
    assert first.tolist() == [[9, 9, 9]]


def test_denormal_numbers_count_as_zero_within_the_call_and_not_after_it() -> None:
    function = function_of(lambda x: x * 2.0)
    answer = inline(function, DENORMALS)({"x": DENORMALS})
    assert answer["y"].tolist() == function.run_plain({"x": DENORMALS}, ())["y"].tolist() == [[0] * 3] * 2
    assert (DENORMALS * np.float32(2)).all()


def test_denormal_numbers_are_numbers_again_after_a_call_that_failed() -> None:
    call = inline(function_of(lambda x: tf.debugging.check_numerics(x, "x")), DENORMALS)
    with pytest.raises(tf.errors.InvalidArgumentError):
        call({"x": np.full((2, 3), np.nan, np.float32)})
    assert (DENORMALS * np.float32(2)).all()


@pytest.mark.parametrize("value", [40, -3])
def test_loops_and_branches_run(value: int) -> None:
    def body(x: Any) -> Any:
        halves = tf.while_loop(lambda x: tf.reduce_max(x) > 1.0, lambda x: (x / 2.0,), [x])[0]
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: halves, lambda: -halves)

    function, x = function_of(body), np.full((2, 3), value, np.float32)
    assert inline(function, x)({"x": x})["y"].tolist() == function.run_plain({"x": x}, ())["y"].tolist()


def test_strings_go_in_and_come_out() -> None:
    x = np.array([[b"a", b"\xff", b""]], object)
    assert inline(function_of(tf.strings.upper, np.dtype(object)), x)({"x": x})["y"].tolist() == [[b"A", b"\xff", b""]]


def test_what_is_not_possible_says_why() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], ["b"]), "")
    strings = function_of(table.lookup, np.dtype(object))
    with pytest.raises(VariantNotPossible, match="it has tables"):
        inline(strings, np.array([[b"a", b"b", b"c"]], object))
    x = np.ones((2, 3), FLOAT32)
    with pytest.raises(VariantNotPossible, match="the machine's cores"):
        inline(affine(), x, on_devices=True)
