"""Tensors as parts of a message: (shape, content), and (shape, content, dtype) where that is not what was agreed on.

Content is bytes in C order; a number where a block of shared memory begins; a list of bytes for strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from app.core.inference import STRING, Array, dtype_name
from app.frontends.channel.arena import ReadingArena, WritingArena

#: Smaller tensors travel in the message.
SHARED_FROM_BYTES = 64 * 1024


def dtype_of(name: str) -> np.dtype[Any]:
    """The inverse of dtype_name."""
    return STRING if name == "string" else np.dtype(getattr(ml_dtypes, name, name))


def encode(array: Array, agreed: np.dtype[Any], arena: WritingArena) -> tuple[Any, ...]:
    dtype = array.dtype
    content: Any = None
    if dtype.hasobject:
        content = array.ravel().tolist()
    elif array.nbytes >= SHARED_FROM_BYTES:
        content = arena.put(array)
    if content is None:
        content = array.tobytes()
    return (array.shape, content) if dtype == agreed else (array.shape, content, dtype_name(dtype))


def decode(tensor: tuple[Any, ...], agreed: np.dtype[Any], arena: ReadingArena) -> Array:
    """An array that may not be written to, in place where the content lies in shared memory."""
    shape, content = tensor[:2]
    dtype = agreed if len(tensor) == 2 else dtype_of(tensor[2])
    if type(content) is bytes:
        return np.ndarray(shape, dtype, content)
    if type(content) is int:
        return arena.array(content, shape, dtype)
    strings = np.empty(len(content), STRING)
    strings[:] = content
    return strings.reshape(shape)


def skip(tensors: Iterable[tuple[Any, ...]], arena: ReadingArena) -> None:
    """Nobody will decode them."""
    for _, content, *_ in tensors:
        if type(content) is int:
            arena.skip(content)
