"""numpy's .npy format, and predict bodies in it: one input, one output.

numpy reads the header. The data is viewed in place, and only if its size is what the header says: memory is linear in
the body. Python objects are never unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from app.codecs.arrays import cast, check_simple, from_bytes, is_foreign, only_input
from app.codecs.body_format import BodyFormat, PredictBody, ReplyFormat
from app.codecs.errors import NotAcceptable
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, InferenceResponse, ModelSignature, TensorSpec

#: Chosen: a plain array's header of the most dimensions takes some 800 bytes with its padding.
_MAX_HEADER_BYTES = 2048

#: Version 3 differs from 2 only in the names of structures' fields, and structures are rejected.
_HEADER_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
    (3, 0): npy_format.read_array_header_2_0,
}

#: bool, integers, floats, complex numbers, byte strings, text, and bytes without a type (bfloat16 and the like).
_KINDS = frozenset("biufcSUV")


def read_npy(content: bytes, name: str) -> Array:
    """The array that fills `content`, in its own type and C order; it may be read-only.

    Args:
        name: what has this content, for error texts.

    Raises:
        InvalidRequest: it is not an .npy file, or one of Python objects, structures or dates.
    """
    head = content[: _head_size(content)]
    try:
        shape, columns_first, dtype = _read_head(head)
    except Exception as error:  # numpy raises many types of errors for damaged headers
        raise InvalidRequest(f"{name} is not an .npy file: {str(error)[:256]}") from error

    whole = all(type(size) is int and size >= 0 for size in shape)  # numpy reads True as a size, too
    if dtype.kind not in _KINDS or dtype.names or dtype.subdtype or not whole:
        raise InvalidRequest(
            f"{name} has dtype {dtype.str!r} and shape {str(shape)[:64]}; expected a type of numbers, bools or"
            " strings, and whole numbers from 0 as sizes"
        )
    data = memoryview(content)[len(head) :]
    if columns_first:
        return np.asarray(from_bytes(data, dtype, shape[::-1], name).T, order="C")
    return from_bytes(data, dtype, shape, name)


def _head_size(content: bytes) -> int:
    """The bytes before the data: magic string, version, length and header; too few if the header is too long."""
    fields = 10 if content[6:7] == b"\1" else 12
    return fields + min(int.from_bytes(content[8:fields], "little"), _MAX_HEADER_BYTES + 1)


@lru_cache(maxsize=1024)
def _read_head(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type.

    Cached: numpy evaluates the header as a Python literal, which takes longer than the rest.
    """
    file = BytesIO(head)
    return _HEADER_READERS[npy_format.read_magic(file)](file, max_header_size=_MAX_HEADER_BYTES)


def write_npy(array: Array) -> bytes:
    """As numpy.save writes it: bfloat16 and other types of ml_dtypes as bytes without a type, `V2` or `V1`."""
    if is_foreign(array.dtype):
        array = array.view(f"V{array.itemsize}")
    file = BytesIO()
    npy_format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def read(body: bytes, max_bytes: int) -> PredictBody:  # noqa: ARG001 - the array is not larger than the body
    """Raises InvalidRequest."""
    array = read_npy(body, "The body")

    def inputs(signature: ModelSignature) -> dict[str, Array]:
        spec = only_input(signature, "An .npy body")
        return {spec.name: cast(array, spec)}

    return PredictBody(inputs)


def check(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises NotAcceptable, Unsupported."""
    if len(outputs) != 1:
        names = ", ".join(map(repr, outputs)) or "none"
        raise NotAcceptable(
            f"A reply of type application/x-npy has one output; the request wants {names}:"
            " choose one by ?output=NAME, or accept application/x-npz"
        )
    check_numpy(outputs)


def check_numpy(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises NotAcceptable or Unsupported if numpy's files cannot represent a type."""
    check_simple(outputs)
    for name, spec in outputs.items():
        if spec.dtype == STRING:
            raise NotAcceptable(
                f"Output {name!r} has strings, which numpy's files cannot represent safely;"
                " accept application/json, application/msgpack or application/x-protobuf,"
                " or choose other outputs by ?output=NAME"
            )


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """The only output, as `check` makes sure."""
    (array,) = response.outputs.values()
    return write_npy(array)


FORMAT = BodyFormat(("application/x-npy",), read, ReplyFormat(check, write))
