"""Tensors as parts of a message: (shape, content), or (shape, content, dtype) if the dtype is not the signature's.

Content is bytes in C order, the offset of a block of shared memory, or a list of bytes for strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from app.core.inference import QUANTIZED, STRING, Array, dtype_name, string_array
from app.frontends.channel.shared_memory import SharedMemoryReader, SharedMemoryWriter

#: Chosen: smaller tensors are sent in the message.
SHARED_FROM_BYTES = 64 * 1024


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of a name that `dtype_name` gave."""
    quantized = next((dtype for dtype in QUANTIZED if dtype_name(dtype) == name), None)
    return quantized or (STRING if name == "string" else np.dtype(getattr(ml_dtypes, name, name)))


def encode(array: Array, expected: np.dtype[Any], memory: SharedMemoryWriter) -> tuple[Any, ...]:
    """The message of a tensor; `expected` is the dtype in the signature."""
    dtype = array.dtype
    content: Any = None
    if dtype.hasobject:
        content = array.ravel().tolist()
    elif array.nbytes >= SHARED_FROM_BYTES:
        content = memory.put(array)
    if content is None:
        content = array.tobytes()
    return (array.shape, content) if dtype == expected else (array.shape, content, dtype_name(dtype))


def decode(tensor: tuple[Any, ...], expected: np.dtype[Any], memory: SharedMemoryReader) -> Array:
    """The tensor as a read-only array; in place if its content is in shared memory."""
    shape, content = tensor[:2]
    dtype = expected if len(tensor) == 2 else dtype_of(tensor[2])
    if type(content) is bytes:
        return np.ndarray(shape, dtype, content)
    if type(content) is int:
        return memory.array(content, shape, dtype)
    return string_array(content, shape)


def skip(tensors: Iterable[tuple[Any, ...]], memory: SharedMemoryReader) -> None:
    """Free the shared memory of tensors that are not decoded."""
    for _, content, *_ in tensors:
        if type(content) is int:
            memory.skip(content)
