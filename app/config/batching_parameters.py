"""TensorFlow Serving's BatchingParameters, from --batching_parameters_file or a version's own file, in our terms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.codecs.protobuf.text_format import parse_text
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest

#: Lies in the folder of a version; see the setting per_model_batching.
FILE_NAME = "batching_params.pbtxt"

_NAME = "tensorflow.serving.BatchingParameters"


@dataclass(frozen=True, slots=True)
class BatchingParameters:
    """What the file sets, None and empty where it is silent. Sizes are rows."""

    max_batch_size: int | None = None
    batch_sizes: tuple[int, ...] = ()
    max_batch_delay_ms: float | None = None
    max_queue_batches: int | None = None
    batches_in_flight: int | None = None
    pads_lengths: bool = False

    def sizes(self, default: BatchSizes) -> BatchSizes:
        if self.max_batch_size is None:
            return default
        return BatchSizes.of(self.max_batch_size, self.batch_sizes)


def read_batching_parameters(file: Path) -> BatchingParameters:
    """Blocking.

    Raises:
        InvalidRequest: the file holds no parameters, or wrong ones.
        OSError: it cannot be read.
    """
    message = parse_text(file.read_text("utf-8", "replace"), _NAME)
    try:
        return _decode(message)
    except InvalidRequest as error:
        raise InvalidRequest(f"{file}: {error}") from None


def _decode(message: Any) -> BatchingParameters:
    splits = message.enable_large_batch_splitting.value
    execution = _least(message, "max_execution_batch_size", 1) if splits else None
    largest = execution or _least(message, "max_batch_size", 1)
    sizes = tuple(message.allowed_batch_sizes)
    if sizes:
        largest = _check_sizes(sizes, largest)
    delay_us = _least(message, "batch_timeout_micros", 0)
    return BatchingParameters(
        largest,
        sizes,
        None if delay_us is None else delay_us / 1e3,
        _least(message, "max_enqueued_batches", 0),
        _least(message, "num_batch_threads", 1),
        message.pad_variable_length_inputs,
    )


def _check_sizes(sizes: tuple[int, ...], largest: int | None) -> int:
    """The last of the sizes."""
    last = sizes[-1] if largest is None else largest
    if sizes[0] < 1 or list(sizes) != sorted(set(sizes)) or sizes[-1] != last:
        expected = "positive and ascending" if largest is None else f"positive, ascending and end with {largest}"
        raise InvalidRequest(f"allowed_batch_sizes must be {expected}, not {', '.join(map(str, sizes))}")
    return last


def _least(message: Any, name: str, least: int) -> int | None:
    """The number in field `name`, None where it is not given."""
    if not message.HasField(name):
        return None
    number: int = getattr(message, name).value
    if number < least:
        raise InvalidRequest(f"{name} must be at least {least}, not {number}")
    return number
