"""numpy's .npy format: one array in a file. Pure.

The header is matched, not evaluated, and nothing is ever unpickled.
"""

from __future__ import annotations

import re
import struct
from io import BytesIO
from typing import Any

import numpy as np

from app.errors import InvalidRequest
from app.inference import Array
from app.protocols.body_arrays import from_bytes, is_foreign

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
