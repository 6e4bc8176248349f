"""Rows of the requests in a version's warm-up file: values that the model is known to accept.

TensorFlow Serving replays these requests when it loads a version. Here their rows are tried, beside made-up ones, and
the file is never required: records that cannot be read, or do not fit the signature, are left out.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensors
from app.core.errors import ServingError
from app.core.inference import DEFAULT_SIGNATURE, STRING, Array, ModelSignature, Row, string_array

logger = logging.getLogger(__name__)

FILE_NAME = Path("assets.extra") / "tf_serving_warmup_requests"

#: The most records, bytes of all records and rows of a signature that are read. Chosen.
_MOST_RECORDS, _MOST_BYTES, _MOST_ROWS = 64, 16 * 2**20, 6

#: A record is its length, a checksum, its bytes and another checksum. Checksums are not verified.
_LENGTH, _CHECKSUM_BYTES = struct.Struct("<Q"), 4


def read_known_rows(version: Path, signatures: Mapping[str, ModelSignature]) -> Mapping[str, Sequence[Row]]:
    """Rows by signature, one row each; only of signatures that share calls and are neither ragged nor sparse."""
    found: dict[str, list[Row]] = {}
    try:
        for record in _records(version / FILE_NAME):
            for name, inputs in _requests(message_class("tensorflow.serving.PredictionLog").FromString(record)):
                if name in signatures:
                    rows = found.setdefault(name, [])
                    rows += islice(_rows(signatures[name], inputs), _MOST_ROWS - len(rows))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, DecodeError, ServingError) as error:
        logger.debug("%s is not read any further: %s", version / FILE_NAME, error)
    return found


def _records(file: Path) -> Iterator[bytes]:
    left = _MOST_BYTES
    with file.open("rb") as opened:
        for _ in range(_MOST_RECORDS):
            head = opened.read(_LENGTH.size + _CHECKSUM_BYTES)
            if not head:
                return
            if len(head) < _LENGTH.size + _CHECKSUM_BYTES:
                raise ValueError("a record is cut short")
            (length,) = _LENGTH.unpack_from(head)
            if length > left:
                raise ValueError(f"its records are longer than {_MOST_BYTES:,} bytes")
            left -= length
            record = opened.read(length + _CHECKSUM_BYTES)
            if len(record) < length + _CHECKSUM_BYTES:
                raise ValueError("a record is cut short")
            yield record[:length]


def _requests(log: Any) -> Iterator[tuple[str, Mapping[str, Array] | Sequence[bytes]]]:
    """The signature and the inputs of each request; of classifications and regressions the serialized examples."""
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        yield request.model_spec.signature_name or DEFAULT_SIGNATURE, decode_tensors(request.inputs, _MOST_BYTES)
    elif kind in {"classify_log", "regress_log"}:
        request = getattr(log, kind).request
        examples = [each.SerializeToString() for each in request.input.example_list.examples]
        yield request.model_spec.signature_name or DEFAULT_SIGNATURE, examples


def _rows(signature: ModelSignature, inputs: Mapping[str, Array] | Sequence[bytes]) -> Iterator[Row]:
    if not signature.shares_calls or signature.ragged or signature.sparse:
        return
    if not isinstance(inputs, Mapping):
        strings = [name for name, spec in signature.inputs.items() if spec.dtype == STRING]
        inputs = {strings[0]: string_array(inputs)} if len(strings) == 1 else {}
    fits = inputs.keys() == signature.inputs.keys() and all(
        array.dtype == signature.inputs[name].dtype and signature.inputs[name].accepts_shape(array.shape)
        for name, array in inputs.items()
    )
    shared = signature.shared
    counts = {len(array) for name, array in inputs.items() if name not in shared} if fits else set()
    for row in range(counts.pop() if len(counts) == 1 else 0):
        yield {name: array if name in shared else array[row : row + 1] for name, array in inputs.items()}
