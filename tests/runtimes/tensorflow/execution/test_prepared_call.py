"""Memory that is used again: nobody sees what another caller left there."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import Array, ModelSignature, TensorSpec
from app.runtimes.tensorflow.execution.prepared_call import PreparedCall
from app.runtimes.tensorflow.execution.signature_function import MAX_CALLS, SignatureFunction

FLOAT32 = np.dtype(np.float32)

#: They return the memory of their input, or a part of it; or overwrite it where TensorFlow allows that.
BODIES: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "reshaped": lambda x: tf.reshape(x, tf.shape(x)),
    "first columns": lambda x: x[:, :2],
    "slice of rows": lambda x: x[:],
    "in place": lambda x: x + 0.0,
}


def function_of(body: Callable[[Any], Any]) -> SignatureFunction:
    spec = TensorSpec("x", FLOAT32, (None, 4))
    signature = ModelSignature("s", {"x": spec}, {"y": TensorSpec("y", FLOAT32, (None, None))})
    return SignatureFunction(signature, lambda x: {"y": body(x)})


def rows(value: float, count: int) -> dict[str, Array]:
    return {"x": np.full((count, 4), value, np.float32)}


def call_of(function: SignatureFunction, count: int) -> PreparedCall:
    function(rows(0, count), ())
    return function._calls[(), ((count, 4),)]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("compiled", [False, True])
def test_an_answer_stays_as_it_was(body: Callable[[Any], Any], *, compiled: bool) -> None:
    function = function_of(tf.function(body, jit_compile=True) if compiled else body)
    answers = [function(rows(value, 3), ())["y"] for value in range(20)]
    for value, answer in enumerate(answers):
        assert (answer == value).all()
    answers[0][:] = -1  # it is the caller's own
    assert (function(rows(7, 3), ())["y"] == 7).all()
    assert len(call_of(function, 3)._free) == 1, "nothing was used again: this would prove nothing"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_smaller_batch_shows_nothing_of_a_larger_one(body: Callable[[Any], Any]) -> None:
    function = function_of(body)
    for value, count in enumerate([8, 1, 3, 0, 8, 2, 1]):
        answer = function(rows(value, count), ())["y"]
        assert answer.shape[0] == count
        assert (answer == value).all()


def test_an_input_that_the_model_keeps_is_not_overwritten() -> None:
    kept = tf.Variable(np.zeros((2, 4), np.float32))

    def swap(x: Any) -> Any:
        before = tf.identity(kept.read_value())
        with tf.control_dependencies([before]), tf.control_dependencies([kept.assign(x)]):
            return tf.identity(before)

    function = function_of(swap)
    answers = [function(rows(value, 2), ())["y"] for value in (1, 2, 3)]
    assert [answer[0, 0] for answer in answers] == [0, 1, 2]
    assert not call_of(function, 2)._free


def test_threads_share_no_memory_at_the_same_time() -> None:
    function = function_of(BODIES["identity"])

    def calls(thread: int) -> None:
        for turn in range(300):
            value = 1000 * thread + turn
            assert (function(rows(value, 2), ())["y"] == value).all()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(calls, thread) for thread in range(4)]:
            done.result()
    assert 1 <= len(call_of(function, 2)._free) <= 5


def test_a_call_that_fails_leaves_the_next_one_whole() -> None:
    def guarded(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
            return tf.identity(x)

    function = function_of(guarded)
    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError):
            function(rows(-1, 2), ())
        assert (function(rows(5, 2), ())["y"] == 5).all()


def test_large_inputs_are_not_kept() -> None:
    function = function_of(BODIES["identity"])
    assert len(call_of(function, 64)._free) == 1
    assert not call_of(function, 1 << 16)._free


def test_prepared_calls_are_bounded() -> None:
    function = function_of(BODIES["identity"])
    for count in range(1, MAX_CALLS + 10):
        assert (function(rows(count, count), ())["y"] == count).all()
    assert len(function._calls) <= MAX_CALLS
