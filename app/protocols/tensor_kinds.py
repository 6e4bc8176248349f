"""The tensor types that a TensorProto can carry, and where it carries their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from app.inference import STRING
from app.protocols.messages import enum_numbers
from app.protocols.tensorflow_types import enum_name


class Kind(NamedTuple):
    """A tensor type: what an array of it holds, its typed field, and what one value of that field holds.

    `cell` differs from `dtype` where the field's values are the bits (half) or the halves (complex) of an element.
    `packed`: a list of this field looks on the wire as it does in memory.
    """

    number: int
    dtype: np.dtype[Any]
    field: str
    cell: np.dtype[Any]
    packed: bool


def _kinds() -> Iterator[Kind]:
    def kind(dtype: Any, field: str, cell: Any = None, packed: bool = False) -> Kind:
        dtype = np.dtype(dtype)
        return Kind(_number(dtype), dtype, field, dtype if cell is None else np.dtype(cell), packed)

    yield kind(np.float32, "float_val", packed=True)
    yield kind(np.float64, "double_val", packed=True)
    yield kind(np.complex64, "scomplex_val", np.float32, packed=True)
    yield kind(np.complex128, "dcomplex_val", np.float64, packed=True)
    yield kind(np.bool_, "bool_val", packed=True)
    yield kind(np.float16, "half_val", np.uint16)
    yield kind(ml_dtypes.bfloat16, "half_val", np.uint16)
    for small in (np.int8, np.int16, np.int32, np.uint8, np.uint16):
        yield kind(small, "int_val")
    yield kind(np.int64, "int64_val")
    yield kind(np.uint32, "uint32_val")
    yield kind(np.uint64, "uint64_val")
    yield kind(STRING, "string_val")


def _number(dtype: np.dtype[Any]) -> int:
    return enum_numbers("tensorflow.DataType")[enum_name(dtype)]


BY_NUMBER = {kind.number: kind for kind in _kinds()}
BY_DTYPE = {kind.dtype: kind for kind in BY_NUMBER.values()}
