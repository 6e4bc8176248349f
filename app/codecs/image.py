"""Predict bodies of one image: its pixels for a numeric input, the file itself for an input of strings.

Pixels are the decoded 8-bit values, 0 to 255, in the input's type: neither scaled nor resized.
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from math import inf
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin

from app.codecs.arrays import cast, only_input
from app.codecs.at_once import MOST_PIXELS, TakesLong
from app.codecs.body_format import BodyFormat, PredictBody
from app.codecs.errors import BodyTooLarge
from app.codecs.image_parts import check_parts
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import STRING, Array, Dimension, ModelSignature, TensorSpec, string_array

#: Pillow's own limit, which only warns at first; `_check_size` has ours.
Image.MAX_IMAGE_PIXELS = None

#: The most bytes of one compressed text of a PNG, and of all of them; Pillow's own limits are 1 and 64 MiB. Chosen: ten
#: times the text that editors write.
PngImagePlugin.MAX_TEXT_CHUNK, PngImagePlugin.MAX_TEXT_MEMORY = 256 * 1024, 512 * 1024

#: The pixels may take this many bytes, and this many times those of the file. Chosen: a black image of 1920 x 1080
#: is free.
_FREE_BYTES, _MOST_RATIO = 8 * 1024 * 1024, 200

#: Number of channels of an input -> Pillow's mode.
_COLOURS = {1: "L", 3: "RGB", 4: "RGBA"}

#: For an input with a free number of channels: the image's mode -> the mode that keeps its channels.
_OWN_COLOURS = {"1": "L", "L": "L", "LA": "L", "P": "RGB", "PA": "RGB", "CMYK": "RGB", "RGB": "RGB", "RGBA": "RGBA"}


def read(format_: str, body: bytes, max_bytes: int, *, at_once: bool = False) -> PredictBody:
    """A body of one row. Its inputs raise InvalidRequest, BodyTooLarge; `at_once` also TakesLong."""
    return PredictBody(partial(_inputs, format_, body, max_bytes, MOST_PIXELS if at_once else inf), by_row=True)


def takes_image(signature: ModelSignature) -> bool:
    specs = list(signature.unnamed().values())
    return len(specs) == 1 and (specs[0].dtype == STRING or _has_pixels(specs[0]))


def _inputs(
    format_: str, body: bytes, max_bytes: int, most_pixels: float, signature: ModelSignature
) -> dict[str, Array]:
    spec = only_input(signature, "An image")
    if spec.dtype == STRING:
        return {spec.name: string_array([body], (1,) * (1 if spec.shape is None else len(spec.shape)))}
    if not _has_pixels(spec):
        raise InvalidRequest(
            f"Input {spec.name!r} {spec} cannot be an image; expected shape [N,H,W], or [N,H,W,C] with 1, 3 or 4"
            " channels, or strings"
        )
    return {spec.name: cast(_pixels(format_, body, max_bytes, most_pixels, spec), spec)}


def _has_pixels(spec: TensorSpec) -> bool:
    shape = spec.shape
    if shape is None or len(shape) not in (3, 4) or shape[0] not in (None, 1):
        return False
    return len(shape) == 3 or shape[3] in (None, *_COLOURS)


def _pixels(format_: str, body: bytes, max_bytes: int, most_pixels: float, spec: TensorSpec) -> Array:
    """The pixels, uint8 of shape [1,H,W] or [1,H,W,C]."""
    assert spec.shape is not None  # noqa: S101 - _has_pixels
    height, width, *channels = spec.shape[1:]
    if len(body) > most_pixels:  # many segments or texts may take as long as pixels
        raise TakesLong
    check_parts(format_, body)
    try:
        with Image.open(BytesIO(body), formats=[format_]) as image:
            _check_size(image, height, width, spec, max_bytes)
            _check_ratio(image, len(body))
            if image.height * image.width > most_pixels:
                raise TakesLong
            pixels = _decode(image, _colours(image.mode, channels))
    except (ServingError, TakesLong):
        raise
    except Exception as error:  # decoders raise many types of errors for damaged bytes
        raise InvalidRequest(f"The body is not a valid {format_} image: {_reason(error)}") from error
    return pixels.reshape(1, *pixels.shape[:2], *([-1] if channels else []))


def _decode(image: Any, colours: str) -> Array:
    image.load()
    if colours != "RGBA":
        image.info.pop("transparency", None)  # otherwise Pillow warns that it is lost
    return np.asarray(image.convert(colours))


def _check_size(image: Any, height: Dimension, width: Dimension, spec: TensorSpec, max_bytes: int) -> None:
    """Check the size in the file's header, before pixels are decoded. Raises InvalidRequest, BodyTooLarge."""
    if image.height != (height or image.height) or image.width != (width or image.width):
        expected = ", ".join(f"{name} {size}" for name, size in (("height", height), ("width", width)) if size)
        raise InvalidRequest(
            f"The image has height {image.height} and width {image.width}; expected {expected} for input"
            f" {spec.name!r} {spec}"
        )
    if image.height * image.width * max(4, spec.dtype.itemsize * 3) > max_bytes:
        raise BodyTooLarge(
            f"The image has {image.width} x {image.height} pixels,"
            f" which take more than {max_bytes} bytes: max_body_bytes, or what a small container has memory for"
        )


def _check_ratio(image: Any, size: int) -> None:
    """Check the bytes of the pixels against the `size` of the file. Raises BodyTooLarge."""
    if image.height * image.width * 4 > _FREE_BYTES + _MOST_RATIO * size:
        raise BodyTooLarge(
            f"The image has {image.width} x {image.height} pixels, which take more than {_MOST_RATIO} times the"
            f" {size} bytes of the file; send it less compressed"
        )


def _colours(mode: str, channels: list[Dimension]) -> str:
    own = _OWN_COLOURS.get(mode)
    if own is None:
        raise ValueError("expected 8 bits a channel")
    if not channels:
        return "L"
    return own if channels[0] is None else _COLOURS[channels[0]]


def _reason(error: BaseException) -> str:
    """The error's text, unless Pillow names an address in memory."""
    return "it cannot be read" if "<_io." in str(error) else str(error)[:256] or type(error).__name__


#: Requests only: a reply cannot be an image.
JPEG = BodyFormat(("image/jpeg",), partial(read, "JPEG"), also_read=("image/jpg",))
PNG = BodyFormat(("image/png",), partial(read, "PNG"))
