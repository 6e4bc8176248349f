"""numpy's .npy format, and predict bodies in it: one input, one output.

The data is viewed in place, and only if it has the size in the header: memory is linear in the body. Python objects are
never unpickled. The header is matched by patterns: numpy would evaluate it as a Python literal, at 7 us a byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from app.codecs.arrays import MAX_RANK, cast, check_simple, from_bytes, is_foreign, only_input
from app.codecs.at_once import MOST_STRINGS, TakesLong
from app.codecs.body_format import BodyFormat, PredictBody, ReplyFormat
from app.codecs.errors import NotAcceptable
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, InferenceResponse, ModelSignature, TensorSpec

#: Chosen: a plain array's header of the most dimensions takes some 800 bytes with its padding.
_MAX_HEADER_BYTES = 2048

#: The bytes of a string beside its content, by kind: measured 64 and 128 while it is made, and TensorFlow has two more.
_MADE_BYTES = {"S": 112, "U": 176}

#: The same for a string of one character, which Python has once. Measured: 20 while it is made.
_SHORTEST_BYTES = 64

_MAGIC = b"\x93NUMPY"

#: Version 3 differs from 2 only in the names of structures' fields, and structures are rejected.
_VERSIONS = (b"\1\0", b"\2\0", b"\3\0")

#: The fields of a header, in any order. Every repetition is possessive: a mismatch is found in one pass.
_FIELD = re.compile(
    rb"""\s*+['"](?:descr['"]\s*+:\s*+['"](?P<descr>[^'"]{1,32}+)['"]"""
    rb"""|fortran_order['"]\s*+:\s*+(?P<fortran_order>True|False)"""
    rb"""|shape['"]\s*+:\s*+\((?P<shape>[^)]*+)\))\s*+,?+"""
)
_SIZE = re.compile(rb"\s*+(\d{1,19}+)L?+\s*+")

#: bool, integers, floats, complex numbers, byte strings, text, and bytes without a type (bfloat16 and the like).
_KINDS = frozenset("biufcSUV")


def read_npy(content: bytes, name: str) -> Array:
    """The array that fills `content`, in its own type and C order; it may be read-only.

    Args:
        name: the name of the content, for error texts.

    Raises:
        InvalidRequest: it is no .npy file, or has Python objects, structures or dates.
    """
    head = content[: _head_size(content)]
    parsed = _read_head(head)
    if parsed is None:
        raise InvalidRequest(f"{name} is not an .npy file, or its header is not that of a plain array")
    shape, columns_first, dtype = parsed
    if dtype.kind not in _KINDS or dtype.names or dtype.subdtype:
        raise InvalidRequest(f"{name} has dtype {dtype.str!r}; expected a type of numbers, bools or strings")
    data = memoryview(content)[len(head) :]
    if columns_first:
        return np.asarray(from_bytes(data, dtype, shape[::-1], name).T, order="C")
    return from_bytes(data, dtype, shape, name)


def _head_size(content: bytes) -> int:
    """The bytes before the data: magic string, version, length and header; too few if the header is too long."""
    fields = 10 if content[6:7] == b"\1" else 12
    return fields + min(int.from_bytes(content[8:fields], "little"), _MAX_HEADER_BYTES + 1)


@lru_cache(maxsize=1024)
def _read_head(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]] | None:
    """Shape, order and type in a head; None if it is of an unknown version or does not have exactly these fields."""
    start = 10 if head[6:7] == b"\1" else 12
    length = int.from_bytes(head[8:start], "little")
    header = head[start:].strip()
    known = head.startswith(_MAGIC) and head[6:8] in _VERSIONS and header[:1] + header[-1:] == b"{}"
    if not known or length > _MAX_HEADER_BYTES or len(head) < start + length:
        return None
    fields: dict[str, bytes] = {}
    end = 1
    while found := _FIELD.match(header, end):
        end = found.end()
        fields[found.lastgroup or ""] = found[found.lastgroup or ""]
    shape = _read_shape(fields.get("shape"))
    if header[end:].strip() != b"}" or len(fields) < len(_FIELD.groupindex) or shape is None:
        return None
    try:
        return shape, fields["fortran_order"] == b"True", np.dtype(fields["descr"].decode())
    except Exception:  # numpy raises many types of errors for names of no type
        return None


def _read_shape(text: bytes | None) -> tuple[int, ...] | None:
    """The sizes in the text of a tuple, without its parentheses; None for any other text."""
    if text is None or not text.strip():
        return None if text is None else ()
    *sizes, last = text.split(b",")
    if last.strip():
        sizes = [*sizes, last] if sizes else []  # (3) is a number, and (3,) a tuple
    found = [_SIZE.fullmatch(size) for size in sizes[: MAX_RANK + 1]]
    whole = tuple([int(each[1]) for each in found if each])
    return whole if whole and len(whole) == len(found) else None


def write_npy(array: Array) -> bytes:
    """The .npy file of an array, as by numpy.save: types of ml_dtypes are bytes without a type, `V2` or `V1`."""
    if is_foreign(array.dtype):
        array = array.view(f"V{array.itemsize}")
    file = BytesIO()
    npy_format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def read(body: bytes, _: int, *, at_once: bool = False) -> PredictBody:
    """The content of an .npy body; the array is never larger than the body.

    Raises:
        InvalidRequest: the body is no array that numpy writes.
        TakesLong: `at_once` is set, and the array has many strings.
    """
    if at_once and _strings(body)[0] > MOST_STRINGS:
        raise TakesLong
    array = read_npy(body, "The body")

    def inputs(signature: ModelSignature) -> dict[str, Array]:
        spec = only_input(signature, "An .npy body")
        return {spec.name: cast(array, spec)}

    return PredictBody(inputs)


def made_bytes(body: bytes) -> float:
    """The bytes of strings as Python's and TensorFlow's objects; 0 for numbers, and for other files."""
    count, dtype = _strings(body)
    if not count:
        return 0.0
    shortest = dtype.itemsize == np.dtype(f"{dtype.kind}1").itemsize
    return float(count * (_SHORTEST_BYTES if shortest else _MADE_BYTES[dtype.kind]))


def _strings(body: bytes) -> tuple[int, np.dtype[Any]]:
    """The number of strings, as far as the body has room for them, and their type."""
    parsed = _read_head(body[: _head_size(body)])
    if parsed is None or parsed[2].kind not in _MADE_BYTES or not parsed[2].itemsize:
        return 0, STRING
    shape, _, dtype = parsed
    return min(prod(shape), len(body) // dtype.itemsize), dtype


def check(outputs: Mapping[str, TensorSpec]) -> None:
    """Check that there is one output, and that numpy's files can represent it. Raises NotAcceptable, Unsupported."""
    if len(outputs) != 1:
        names = ", ".join(map(repr, outputs)) or "none"
        raise NotAcceptable(
            f"A reply of type application/x-npy has one output; the request wants {names}:"
            " choose one by ?output=NAME, or accept application/x-npz"
        )
    check_numpy(outputs)


def check_numpy(outputs: Mapping[str, TensorSpec]) -> None:
    """Check that numpy's files can represent all types. Raises NotAcceptable, Unsupported."""
    check_simple(outputs)
    for name, spec in outputs.items():
        if spec.dtype == STRING:
            raise NotAcceptable(
                f"Output {name!r} has strings, which numpy's files cannot represent safely;"
                " accept application/json, application/msgpack or application/x-protobuf,"
                " or choose other outputs by ?output=NAME"
            )


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """The file of the output, of which `check` allows one."""
    (array,) = response.outputs.values()
    return write_npy(array)


FORMAT = BodyFormat(
    ("application/x-npy",),
    read,
    ReplyFormat(check, write),
    made_bytes=made_bytes,
)
