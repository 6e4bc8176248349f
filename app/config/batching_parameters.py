"""TensorFlow Serving's BatchingParameters, from --batching_parameters_file or a version's own file, in our terms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.codecs.protobuf.text_format import parse_text
from app.core.batch_sizes import (
    MOST_BATCH_ROWS,
    MOST_BATCH_SIZES,
    MOST_BATCHES_IN_FLIGHT,
    MOST_DELAY_MS,
    MOST_QUEUE_ROWS,
    BatchSizes,
)
from app.core.errors import InvalidRequest

#: The file in the folder of a version; see the setting per_model_batching.
FILE_NAME = "batching_params.pbtxt"

_NAME = "tensorflow.serving.BatchingParameters"


@dataclass(frozen=True, slots=True)
class BatchingParameters:
    """The values of the file, None or empty where it sets none. Sizes are rows."""

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
    """The batching parameters in a file. Blocking.

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
    execution = _number(message, "max_execution_batch_size", 1, MOST_BATCH_ROWS) if splits else None
    largest = execution or _number(message, "max_batch_size", 1, MOST_BATCH_ROWS)
    sizes = tuple(message.allowed_batch_sizes)
    if sizes:
        largest = _check_sizes(sizes, largest)
    delay_us = _number(message, "batch_timeout_micros", 0, 1000 * MOST_DELAY_MS)
    return BatchingParameters(
        largest,
        sizes,
        None if delay_us is None else delay_us / 1e3,
        _number(message, "max_enqueued_batches", 0, MOST_QUEUE_ROWS),
        _number(message, "num_batch_threads", 1, MOST_BATCHES_IN_FLIGHT),
        message.pad_variable_length_inputs,
    )


def _check_sizes(sizes: tuple[int, ...], largest: int | None) -> int:
    """The last of the sizes."""
    last = sizes[-1] if largest is None else largest
    if len(sizes) > MOST_BATCH_SIZES or last > MOST_BATCH_ROWS:
        raise InvalidRequest(
            f"allowed_batch_sizes must be at most {MOST_BATCH_SIZES} sizes of at most {MOST_BATCH_ROWS} rows, "
            f"not {len(sizes)} up to {last}"
        )
    if sizes[0] < 1 or list(sizes) != sorted(set(sizes)) or sizes[-1] != last:
        expected = "positive and ascending" if largest is None else f"positive, ascending and end with {largest}"
        raise InvalidRequest(f"allowed_batch_sizes must be {expected}, not {', '.join(map(str, sizes))}")
    return last


def _number(message: Any, name: str, least: int, most: int) -> int | None:
    """The number in field `name`, None where it is not given."""
    if not message.HasField(name):
        return None
    number: int = getattr(message, name).value
    if number < least:
        raise InvalidRequest(f"{name} must be at least {least}, not {number}")
    if number > most:
        raise InvalidRequest(f"{name} must be at most {most}, not {number}")
    return number
