from collections.abc import Callable

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InferenceFailed, InvalidRequest, ModelUnusable, OutOfMemory
from app.runtimes.tensorflow.error_mapping import MAX_CHARACTERS, first_meaningful_line, is_passing, map_error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (tf.errors.InvalidArgumentError(None, None, "bad value"), InvalidRequest),
        (tf.errors.OutOfRangeError(None, None, "past the end"), InvalidRequest),
        (tf.errors.FailedPreconditionError(None, None, "not in this order"), InvalidRequest),
        (tf.errors.FailedPreconditionError(None, None, "Table not initialized."), ModelUnusable),
        (tf.errors.FailedPreconditionError(None, None, "Could not find variable w."), ModelUnusable),
        (ValueError("wrong shape"), InvalidRequest),
        (TypeError("wrong type"), InvalidRequest),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), OutOfMemory),
        (tf.errors.InternalError(None, None, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"), OutOfMemory),
        (tf.errors.InternalError(None, None, "Dst tensor is not initialized."), OutOfMemory),
        (MemoryError(), OutOfMemory),
        (
            tf.errors.AbortedError(None, None, "Status: 2, message: could not create a descriptor for a pooling"),
            InvalidRequest,
        ),
        (tf.errors.InternalError(None, None, "cuDNN launch failure"), InferenceFailed),
        (tf.errors.UnimplementedError(None, None, "no such kernel"), InferenceFailed),
        (tf.errors.NotFoundError(None, None, "no such resource"), InferenceFailed),
        (
            tf.errors.InvalidArgumentError(None, None, "ValueError: Could not find callback with key=pyfunc_0 in"),
            ModelUnusable,
        ),
        (RuntimeError("anything else"), InferenceFailed),
    ],
)
def test_whose_fault_it_is(error: Exception, kind: type[Exception]) -> None:
    assert type(map_error(error)) is kind


def _sparse(index: int, size: int) -> tf.SparseTensor:
    return tf.SparseTensor([[index, 0]], [1.0], [2, size])


@pytest.mark.parametrize(
    "call",
    [
        lambda: tf.io.decode_compressed([b"no gzip"], "GZIP"),
        lambda: tf.io.decode_compressed([b"no zlib"], "ZLIB"),
        lambda: tf.io.decode_proto([b"\xff"], "tensorflow.Example", ["features"], [tf.string]),
        lambda: tf.sparse.reduce_sum(_sparse(5, 5), 1),
        lambda: tf.sparse.reduce_max(_sparse(-1, 5), 1),
        lambda: tf.sparse.concat(0, [_sparse(0, 1 << 62), _sparse(0, 1 << 62)]),
        lambda: tf.pad(tf.ones([1] * 9), tf.ones([9, 2], tf.int32)),
        lambda: tf.where(tf.ones([1] * 9, tf.bool), tf.ones([2] + [1] * 8), 0.0),
    ],
)
def test_an_operation_rejects_a_value_by_a_code_of_another_meaning(call: Callable[[], object]) -> None:
    # A neighbour's request would fail with it, if it did not count as the fault of its sender.
    with pytest.raises(tf.errors.OpError) as raised:
        call()
    assert type(map_error(raised.value)) is InvalidRequest


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("", "ValueError"),
        ("bad value [Op:__inference_f_12]", "bad value"),
        ("{{function_node __inference_f_1}} bad value [[{{node Add}}]]", "bad value"),
        (
            "Graph execution error:\n\nDetected at node Add defined at (most recent call last):\n"
            "<stack traces unavailable>\nbad value\n\t [[{{node Add}}]] [Op:__inference_f_12]",
            "bad value",
        ),
        (
            "Detected at node 'Add' defined at (most recent call last):\n"
            '    File "/home/ann/train.py", line 3, in f\n'
            "      return a + b\nNode: 'Add'\nbad value",
            "bad value",
        ),
        ("[Op:__inference_f_12]\nbad value", "bad value"),
        ("2 root error(s) found.\n  (0) INVALID_ARGUMENT:  bad value\n\t [[{{node Add}}]]", "bad value"),
        ("cannot open /home/ann/m/1/variables/variables for reading", "cannot open variables for reading"),
        ("no 'a/b' in x (assert/y:0) nor 3 / 4", "no 'a/b' in x (assert/y:0) nor 3 / 4"),
    ],
)
def test_the_line_says_what_went_wrong_and_not_where(text: str, line: str) -> None:
    assert first_meaningful_line(ValueError(text)) == line


@given(st.text())
def test_there_is_always_one_line_of_bounded_length(text: str) -> None:
    line = first_meaningful_line(ValueError(text))
    assert 0 < len(line) <= MAX_CHARACTERS
    assert len(line.splitlines()) == 1


def test_a_long_line_shows_that_it_is_cut() -> None:
    assert first_meaningful_line(ValueError("x" * 1000)) == "x" * (MAX_CHARACTERS - 1) + "…"


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (tf.errors.UnknownError(None, None, "m/1/variables/variables.index; Input/output error"), True),
        (tf.errors.AbortedError(None, None, "Stale file handle"), True),
        (tf.errors.UnavailableError(None, None, "the server is gone"), True),
        (tf.errors.DataLossError(None, None, "Unable to open table file"), True),
        (OSError(5, "Input/output error"), True),
        (OSError("SavedModel file does not exist"), False),
        (FileNotFoundError(2, "No such file or directory"), False),
        (tf.errors.NotFoundError(None, None, "no variables.index"), False),
        (tf.errors.InvalidArgumentError(None, None, "unknown op"), False),
        (ValueError("no tags"), False),
    ],
)
def test_what_could_not_be_read_may_pass(error: Exception, passes: bool) -> None:
    assert is_passing(error) == passes
