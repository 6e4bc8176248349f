"""numpy's .npy format: one array in a file. Pure.

The header is matched, not evaluated, and nothing is ever unpickled.


Predict bodies as .npy: the one input, the one output. Pure."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np

from app.codecs.arrays import cast, check_simple, from_bytes, is_foreign, only_input
from app.codecs.body_format import BodyForm, PredictBody, ReplyForm
from app.codecs.errors import NotAcceptable
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, InferenceResponse, ModelSignature, TensorSpec

_MAGIC = b"\x93NUMPY"

#: Major versions of the format, and how each gives the length of its header.
_LENGTHS = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}

#: Writers agree on the order of the keys.
_HEADER = re.compile(
    r"\{ *'descr': *'(?P<dtype>[^']*)', *'fortran_order': *(?P<columns>True|False),"
    r" *'shape': *\((?P<shape>[0-9, ]*)\) *,? *\}\s*"
)
_DTYPE = re.compile(r"[<>|=][biufcSUV][0-9]{1,9}")

#: The longest text of a dimension: 2 ** 63.
_MAX_DIGITS = 19


def read_npy(content: bytes, name: str) -> Array:
    """The array in all of `content`, in its own type; it may be read-only. `name` is for error texts.

    Raises InvalidRequest: it is no .npy file, or one of pickled objects, structures, dates.
    """
    length = _LENGTHS.get(content[6]) if content[:6] == _MAGIC and len(content) > 8 else None
    if length is None:
        raise InvalidRequest(f"{name} is no .npy file: it does not begin with \\x93NUMPY and a version from 1 to 3")
    start = 8 + length.size
    end = start + length.unpack(content[8:start].ljust(length.size, b"\0"))[0]
    header = _HEADER.fullmatch(content[start:end].decode("latin-1"))
    if header is None:
        raise InvalidRequest(f"{name} has no .npy header of a plain array; structures are not accepted")
    return _array(memoryview(content)[end:], header, name)


def write_npy(array: Array) -> bytes:
    """As numpy.save writes it; bfloat16 and other types outside plain numpy as `V2`, `V1`."""
    if is_foreign(array.dtype):
        array = array.view(f"V{array.itemsize}")
    file = BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _array(content: memoryview, header: re.Match[str], name: str) -> Array:
    dtype, shape = _dtype(header["dtype"], name), _shape(header["shape"], name)
    if header["columns"] == "True":
        return np.asarray(from_bytes(content, dtype, shape[::-1], name).T, order="C")
    return from_bytes(content, dtype, shape, name)


def _dtype(text: str, name: str) -> np.dtype[Any]:
    try:
        if _DTYPE.fullmatch(text):
            return np.dtype(text)
    except (TypeError, ValueError):
        pass
    raise InvalidRequest(f"{name} has dtype {text[:64]!r}; expected a number type, bool, or strings ('S', 'U')")


def _shape(text: str, name: str) -> list[int]:
    sizes = [size for part in text.split(",") if (size := part.strip())]
    if not all(size.isdigit() and len(size) <= _MAX_DIGITS for size in sizes):
        raise InvalidRequest(f"{name} has shape ({text[:64]}); expected whole numbers")
    return [int(size) for size in sizes]


def read(body: bytes, max_bytes: int) -> PredictBody:  # noqa: ARG001 - an .npy file does not grow
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
            f"A reply of type application/x-npy has one output, but wanted are {names};"
            " choose one by ?output=NAME, or accept application/x-npz"
        )
    check_numpy(outputs)


def check_numpy(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises NotAcceptable, Unsupported where numpy's files have no form for a type."""
    check_simple(outputs)
    for name, spec in outputs.items():
        if spec.dtype == STRING:
            raise NotAcceptable(
                f"Output {name!r} is of strings, for which numpy's files have no safe form;"
                " accept application/json, application/msgpack or application/x-protobuf,"
                " or choose other outputs by ?output=NAME"
            )


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    (array,) = response.outputs.values()
    return write_npy(array)


FORM = BodyForm(("application/x-npy",), read, ReplyForm(check, write))
