"""Model inputs from files: JSON as in POST ...:predict, .npy (the only input), .npz (each input under its name)."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

from app.codecs.arrays import cast
from app.codecs.json.parsing import parse
from app.codecs.json.predict_documents import decode_predict, signature_name
from app.core.errors import InvalidRequest, SignatureNotFound
from app.core.inference import DEFAULT_SIGNATURE, STRING, Array, ModelSignature, TensorSpec, dtype_name
from app.core.validation import check_inputs

_NPY, _NPZ = b"\x93NUMPY", b"PK\x03\x04"


def read_inputs(
    body: bytes, signatures: Mapping[str, ModelSignature], name: str = ""
) -> tuple[ModelSignature, dict[str, Array], bool]:
    """The signature, its checked inputs by name, and whether they came row by row.

    Args:
        name: of the signature; empty: the one that the JSON names, or the default.

    Raises InvalidRequest, SignatureNotFound.
    """
    if is_numpy_file(body):
        signature = find_signature(signatures, name or DEFAULT_SIGNATURE)
        inputs, by_row = read_numpy_file(body, signature), signature.batchable
    else:
        document = parse(body)
        signature = find_signature(signatures, name or signature_name(document))
        inputs, by_row = decode_predict(document, signature)
    check_inputs(signature, inputs)
    return signature, inputs, by_row


def find_signature(signatures: Mapping[str, ModelSignature], name: str) -> ModelSignature:
    """The signature of this name. Raises SignatureNotFound."""
    if name not in signatures:
        raise SignatureNotFound(f"The model has no signature {name!r}; it has {', '.join(signatures)}")
    return signatures[name]


def is_numpy_file(body: bytes) -> bool:
    return body.startswith((_NPY, _NPZ))


def read_numpy_file(body: bytes, signature: ModelSignature) -> dict[str, Array]:
    """The inputs by name, in the signature's types. Unknown names are kept: the check of all inputs rejects them.

    Raises:
        InvalidRequest: the file is broken, holds Python objects, or holds values that the types cannot hold.
    """
    try:
        content = np.load(io.BytesIO(body), allow_pickle=False)
        arrays = dict(content) if isinstance(content, np.lib.npyio.NpzFile) else {_only_input(signature): content}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidRequest(f"The file of arrays cannot be read: {error}") from error
    specs = signature.inputs
    return {name: _cast(array, specs[name]) if name in specs else array for name, array in arrays.items()}


def _only_input(signature: ModelSignature) -> str:
    if len(signature.inputs) != 1:
        names = ", ".join(signature.inputs)
        raise InvalidRequest(f"A .npy file holds one input; signature {signature.name!r} needs .npz with {names}")
    return next(iter(signature.inputs))


def _cast(array: Array, spec: TensorSpec) -> Array:
    text = array.dtype.kind in "SU"
    if text and spec.dtype == STRING:
        return cast(array, spec)
    if text or spec.dtype == STRING or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise InvalidRequest(f"Input {spec.name!r} has dtype {dtype_name(array.dtype)}; expected {spec}")
    numbers = array.astype(spec.dtype)
    if spec.dtype.kind in "iu" and not np.array_equal(numbers, array):
        raise InvalidRequest(f"Input {spec.name!r} holds numbers that {dtype_name(spec.dtype)} cannot")
    return numbers
