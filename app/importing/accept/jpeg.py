"""`--accept jpeg`: images as files (JPEG, PNG, BMP, the first frame of GIF), decoded and resized in the graph.

- Each file is decoded alone, several at a time, so that one that is broken fails alone.
- Images are resized as keras.utils.image_dataset_from_directory does it: bilinear, not antialiased. A model of any
  height and width gets each image as it is: images of several sizes do not fit into one call.
- Pixels are 0 to 255 unless `--pixels` says otherwise (pixels.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.importing.accept.front import Front
from app.importing.accept.pixels import AS_DECODED, OF_COLOURS, RANGES
from app.importing.order import CannotImport
from app.importing.source import Endpoint, Tensors

#: Numbers of channels that a decoded image may have: gray, colours, colours with transparency.
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class _Images:
    """The input of a model that takes images.

    size: height and width; None if both are free.
    channels_first: whether an image is [channels, height, width].
    flat: whether an image is [height, width], gray.
    pixels: the key of RANGES.
    """

    name: str
    dtype: Any
    rows: int | None
    size: tuple[int, int] | None
    channels: int
    channels_first: bool
    flat: bool
    pixels: str

    @property
    def shape(self) -> list[int | None]:
        """Of an image that was read."""
        return [*(self.size or (None, None)), self.channels]


def image_front(endpoint: Endpoint, pixels: str) -> Front:
    """Files of images in place of the one input of images. Raises CannotImport: there is no such input, or several."""
    images = _images(endpoint, pixels or AS_DECODED)

    def call(files: Any) -> Tensors:
        spec = tf.TensorSpec(images.shape, tf.float32)
        read = tf.map_fn(lambda file: _read(file, images), files, fn_output_signature=spec)
        return {images.name: _arranged(RANGES[images.pixels](read), images)}

    def run(files: Array) -> Mapping[str, Array]:
        read = [_read(tf.constant(file), images).numpy() for file in files]
        ready = np.asarray(RANGES[images.pixels](np.stack(read)), np.float32)
        return {images.name: _arranged(ready, images).numpy()}

    spec = tf.TensorSpec([images.rows], tf.string)
    return Front(f"{images.name}_bytes", spec, frozenset({images.name}), call, run, _note(images))


def _read(file: Any, images: _Images) -> Any:
    """One image [height, width, channels] of float32 from 0 to 255."""
    decoded = tf.io.decode_image(file, images.channels, expand_animations=False)
    if images.size is None:
        return tf.ensure_shape(tf.cast(decoded, tf.float32), images.shape)
    return tf.ensure_shape(tf.image.resize(decoded, images.size), images.shape)


def _arranged(pixels: Any, images: _Images) -> Any:
    """Images as the model takes them: its type, and its order of axes."""
    if images.flat:
        pixels = pixels[..., 0]
    elif images.channels_first:
        pixels = tf.transpose(pixels, [0, 3, 1, 2])
    return tf.cast(tf.round(pixels) if images.dtype.is_integer else pixels, images.dtype)


def _note(images: _Images) -> str:
    resized = f"resized to {images.size[0]}x{images.size[1]} (bilinear)" if images.size else "not resized"
    kind = {1: "gray", 3: "RGB", 4: "RGBA"}[images.channels]
    return f"images are decoded to {kind}, {resized}, pixels {images.pixels} (--pixels names another range)"


# --- the input that takes images ---


def _images(endpoint: Endpoint, pixels: str) -> _Images:
    name = _image_input(endpoint)
    spec = endpoint.inputs[name]
    shape = list(endpoint.usual.get(name, spec.shape))
    flat = len(shape) == 3
    first = not flat and shape[3] not in _CHANNELS and shape[1] in {1, 3}
    channels = 1 if flat else shape[1 if first else 3] or 3
    height, width = shape[2:] if first else shape[1:3]
    if channels not in _CHANNELS:
        raise CannotImport(f"--accept jpeg: input {name!r} has {channels} channels; images have 1, 3 or 4")
    if (height is None) != (width is None):
        text = f"--accept jpeg: input {name!r} {_told(shape)} leaves one of height and width free"
        raise CannotImport(f"{text}; both or none are expected")
    size = None if height is None else (height, width)
    images = _Images(name, spec.dtype, spec.shape[0], size, channels, first, flat, pixels)
    _check_pixels(images)
    return images


def _image_input(endpoint: Endpoint) -> str:
    """The input of the highest of the ranks that images have, if there is one of it."""
    plain = {name: spec for name, spec in endpoint.inputs.items() if isinstance(spec, tf.TensorSpec)}
    ranks = {name: spec.shape.rank for name, spec in plain.items() if _has_numbers(spec)}
    found = [name for name, rank in ranks.items() if rank == 4] or [name for name, rank in ranks.items() if rank == 3]
    if len(found) != 1:
        listed = ", ".join(f"{name} {spec.dtype.name}{_told(list(spec.shape))}" for name, spec in _ranked(plain))
        problem = "several inputs may be images" if found else "no input is an image [?, height, width, channels]"
        raise CannotImport(f"--accept jpeg: {problem}; the inputs are {listed}")
    return found[0]


def _ranked(specs: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return [(name, spec) for name, spec in specs.items() if spec.shape.rank is not None]


def _has_numbers(spec: Any) -> bool:
    return bool(spec.dtype.is_floating or spec.dtype.is_integer)


def _told(shape: Sequence[int | None]) -> str:
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


def _check_pixels(images: _Images) -> None:
    if images.pixels not in RANGES:
        raise CannotImport(f"--pixels {images.pixels}: expected {', '.join(RANGES)}")
    if images.pixels in OF_COLOURS and images.channels != 3:
        raise CannotImport(f"--pixels {images.pixels} is for 3 channels; input {images.name!r} has {images.channels}")
    if images.dtype.is_integer and (images.pixels != AS_DECODED or images.dtype.max < 255):
        raise CannotImport(
            f"--accept jpeg: input {images.name!r} takes {images.dtype.name}, into which pixels {images.pixels} "
            "do not fit; expected a type with whole numbers to 255 and --pixels 0..255, or floating-point numbers"
        )
