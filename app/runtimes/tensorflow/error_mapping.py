"""The mapping of TensorFlow's exceptions to Ferry's errors: the side at fault, and one readable line."""

from __future__ import annotations

import re
from errno import EISDIR, ENOENT, ENOTDIR
from pathlib import Path

import tensorflow as tf

from app.core.errors import FilesUnreadable, InferenceFailed, InvalidRequest, ModelUnusable, OutOfMemory, ServingError

#: The most characters of TensorFlow's messages, which may list a whole graph. Chosen.
MAX_CHARACTERS = 300

# DataLoss in a call is the error of an operation that decodes its input: DecodeCompressed, DecodeProto.
_INPUTS_FAULT = (
    tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.DataLossError, ValueError, TypeError,
)  # fmt: skip

# Values and ranks that operations reject by a code that does not name the fault: SparseReduce and SparseConcat
# (internal), Pad and Select (unimplemented), oneDNN (aborted, as for images smaller than a pool).
_INPUTS_TEXT = re.compile(
    r"outside of bounds|overflow from large input shape|rank not in|Broadcast between|Input dims must be"
    r"|could not create a \w* ?(?:descriptor|primitive)"
)
_UNCLEAR = (tf.errors.InternalError, tf.errors.UnimplementedError, tf.errors.AbortedError)
_NO_MEMORY = (tf.errors.ResourceExhaustedError, MemoryError)

# TensorFlow's words for EIO (Unknown), ESTALE (Aborted), time-outs, lost connections, and files cut short.
_PASSING = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.UnknownError,
    tf.errors.DataLossError,
)

# GPU libraries report a full device as an internal error.
_NO_MEMORY_TEXT = re.compile(r"out of memory|OUT_OF_MEMORY|Dst tensor is not initialized", re.IGNORECASE)

# A table or variable that was never filled is the fault of the model, not of the request.
_MODELS_STATE_TEXT = re.compile(r"initiali[sz]ed|could not find", re.IGNORECASE)

# The error of tf.py_function and tf.numpy_function, whose Python code is not in a SavedModel. No request can mend that.
_NO_PYTHON_TEXT = "Could not find callback with key"

# Lines with places in TensorFlow or in the author's source, and without a reason.
_NOISE = re.compile(
    r"""\s*( $ | Graph\ execution\ error | Detected\ at\ node | Node:\  | <stack\ traces | File\ "
          | \d+\ root\ error | \[\[ )""",
    re.VERBOSE,
)
_QUOTED_SOURCE = re.compile(r"^ {4}")
_NODE_PREFIX = re.compile(r"^(\(\d+\)\s*[A-Z_]+:\s*)|\{\{\w+ [^}]*\}\}\s*")
_NODE_TAIL = re.compile(r"\s*(\[\[.*|\[Op:.*)$")
_FOLDERS = re.compile(r"(?<![\w.\])}])/(?:[^\s/:'\"]+/)+")


def map_error(error: Exception) -> ServingError:
    """The ServingError for the caller of a model whose call raised `error`."""
    text = first_meaningful_line(error)
    if is_no_memory(error):
        return OutOfMemory(text)
    if _NO_PYTHON_TEXT in text:
        return ModelUnusable("The model calls Python code (py_function or numpy_function), which no SavedModel holds")
    if isinstance(error, (*_INPUTS_FAULT, InvalidRequest)):
        return InvalidRequest(text)
    if isinstance(error, tf.errors.FailedPreconditionError):
        return ModelUnusable(text) if _MODELS_STATE_TEXT.search(str(error)) else InvalidRequest(text)
    if isinstance(error, _UNCLEAR) and _INPUTS_TEXT.search(str(error)):
        return InvalidRequest(text)
    return InferenceFailed(text)


def load_failure(path: Path, error: Exception) -> InferenceFailed:
    """The error for the model in folder `path` that could not be loaded."""
    kind = FilesUnreadable if is_passing(error) else InferenceFailed
    return kind(f"{model_name(path)} cannot be loaded: {first_meaningful_line(error)}")


def model_name(path: Path) -> str:
    """'digits/2' for the folder of version 2 of digits: its name in error texts and log lines."""
    return "/".join(path.parts[-2:])


def is_passing(error: Exception) -> bool:
    """Whether a load failed because files could not be read, for a reason that may pass."""
    if isinstance(error, OSError):
        # TensorFlow raises a bare OSError, without a number, for a folder that is no SavedModel.
        return error.errno is not None and error.errno not in {ENOENT, ENOTDIR, EISDIR}
    return isinstance(error, _PASSING)


def is_no_memory(error: Exception) -> bool:
    """Whether a device or the machine had no room."""
    if isinstance(error, tf.errors.InternalError):
        return _NO_MEMORY_TEXT.search(str(error)) is not None
    return isinstance(error, _NO_MEMORY)


def first_meaningful_line(error: Exception) -> str:
    """The first line with the reason of an error, without node names and folders; at most MAX_CHARACTERS."""
    for line in str(error).splitlines():
        if _NOISE.match(line) or _QUOTED_SOURCE.match(line):
            continue
        text = _FOLDERS.sub("", _NODE_TAIL.sub("", _NODE_PREFIX.sub("", line.strip()))).strip()
        if text:
            return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
    return type(error).__name__
