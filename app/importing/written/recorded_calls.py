"""Calls of the proof as files of records: `tf_serving_warmup_requests`, and `golden.tfrecord` with the answers, too.

Both are TFRecords of tensorflow.serving.PredictionLog, as TensorFlow Serving writes its request log. The requests of
the first are those that TensorFlow Serving, and Ferry, call a version with before it serves. The answers of the second
are the source's. Small calls come first; large ones are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import TensorProto, tensor_parts
from app.core.errors import ServingError
from app.core.inference import Array, string_array
from app.loading.values.warm_up_requests import FILE_NAME as WARM_UP_FILE

GOLDEN_FILE = Path("assets.extra") / "golden.tfrecord"

#: The most bytes of the records of a signature, and of its first record, without which a version would have none.
#: Chosen: an image of 512x512 pixels in float32 has 3 MiB.
_MOST_BYTES, _MOST_OF_FIRST = 1 << 20, 4 << 20


class RecordedCall(Protocol):
    """A call of the proof, with the source's answers."""

    @property
    def signature(self) -> str: ...
    @property
    def inputs(self) -> Mapping[str, Array]: ...
    @property
    def outputs(self) -> Mapping[str, Array]: ...


def write_recorded_calls(version: Path, calls: Sequence[RecordedCall]) -> None:
    """Writes both files into the folder of a version; a warm-up file that came with the source stays."""
    logs = [log for _, of in groupby(calls, attrgetter("signature")) for log in _of_signature(list(of))]
    if not logs:
        return
    (version / GOLDEN_FILE).parent.mkdir(exist_ok=True)
    _write(version / GOLDEN_FILE, logs)
    if not (version / WARM_UP_FILE).exists():
        for log in logs:
            log.predict_log.ClearField("response")
        _write(version / WARM_UP_FILE, logs)


def _write(file: Path, logs: Sequence[Any]) -> None:
    with tf.io.TFRecordWriter(str(file)) as writer:
        for log in logs:
            writer.write(log.SerializeToString(deterministic=True))


def _of_signature(calls: Sequence[RecordedCall]) -> list[Any]:
    """The records of a signature, the smallest first, up to the most bytes."""
    logs = sorted([log for call in calls if (log := _log(call)) is not None], key=lambda log: log.ByteSize())
    kept: list[Any] = []
    left = _MOST_BYTES
    for log in logs:
        size = log.ByteSize()
        if size <= left or (not kept and size <= _MOST_OF_FIRST):
            kept.append(log)
            left -= size
    return kept


def _log(call: RecordedCall) -> Any | None:
    """A PredictionLog; None if a tensor has a type that no message can carry."""
    log = message_class("tensorflow.serving.PredictionLog")()
    request, response = log.predict_log.request, log.predict_log.response
    request.model_spec.signature_name = response.model_spec.signature_name = call.signature
    try:
        _fill(request.inputs, call.inputs)
        _fill(response.outputs, call.outputs)
    except ServingError:
        return None
    return log


def _fill(protos: Any, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        protos[name].CopyFrom(TensorProto.FromString(b"".join(tensor_parts(_as_served(array), as_content=True))))


def _as_served(array: Array) -> Array:
    """Strings of a source as those of a server: an array of bytes."""
    array = np.asarray(array)
    if array.dtype.kind not in "SUT":
        return array
    texts = array.ravel().tolist()
    return string_array([text.encode() if isinstance(text, str) else text for text in texts], array.shape)
