"""Predict bodies that are one image: its pixels for a numeric input, the file itself for one of strings. Pure.

Pixels are the decoded 8-bit values, 0 to 255, unscaled and in the input's type. Nothing is resized.
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from app.codecs.arrays import cast, only_input
from app.codecs.body_format import BodyForm, PredictBody
from app.codecs.errors import BodyTooLarge
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import STRING, Array, Dimension, ModelSignature, TensorSpec

#: Pillow's own limit only warns at first, and knows nothing of ours.
Image.MAX_IMAGE_PIXELS = None

#: Pillow's name of the colours for a number of channels.
_COLOURS = {1: "L", 3: "RGB", 4: "RGBA"}

#: What a free number of channels becomes: what the image has.
_OWN_COLOURS = {"1": "L", "L": "L", "LA": "L", "P": "RGB", "PA": "RGB", "CMYK": "RGB", "RGB": "RGB", "RGBA": "RGBA"}


def read(format_: str, body: bytes, max_bytes: int) -> PredictBody:
    """Raises InvalidRequest, as the inputs do."""
    return PredictBody(partial(_inputs, format_, body, max_bytes), by_row=True)


def takes_image(signature: ModelSignature) -> bool:
    """May a body for this signature be an image?"""
    specs = list(signature.expected(()).values())
    return len(specs) == 1 and (specs[0].dtype == STRING or _has_pixels(specs[0]))


def _inputs(format_: str, body: bytes, max_bytes: int, signature: ModelSignature) -> dict[str, Array]:
    spec = only_input(signature, "An image")
    if spec.dtype == STRING:
        file = np.empty(1, STRING)
        file[0] = body
        return {spec.name: file.reshape((1,) * (1 if spec.shape is None else len(spec.shape)))}
    if not _has_pixels(spec):
        raise InvalidRequest(
            f"Input {spec.name!r} {spec} takes no image; expected [N,H,W], or [N,H,W,C] with 1, 3 or 4 channels,"
            " or strings"
        )
    return {spec.name: cast(_pixels(format_, body, max_bytes, spec), spec)}


def _has_pixels(spec: TensorSpec) -> bool:
    shape = spec.shape
    if shape is None or len(shape) not in (3, 4) or shape[0] not in (None, 1):
        return False
    return len(shape) == 3 or shape[3] in (None, *_COLOURS)


def _pixels(format_: str, body: bytes, max_bytes: int, spec: TensorSpec) -> Array:
    """uint8 of shape [1,H,W] or [1,H,W,C]."""
    assert spec.shape is not None  # noqa: S101 - _has_pixels
    height, width, *channels = spec.shape[1:]
    try:
        with Image.open(BytesIO(body), formats=[format_]) as image:
            _check_size(image, height, width, spec, max_bytes)
            pixels = _decode(image, _colours(image.mode, channels))
    except ServingError:
        raise
    except Exception as error:  # whatever a decoder raises of hostile bytes is their fault
        raise InvalidRequest(f"The body is no valid {format_} image: {_reason(error)}") from error
    return pixels.reshape(1, *pixels.shape[:2], *([-1] if channels else []))


def _decode(image: Any, colours: str) -> Array:
    image.load()
    if colours != "RGBA":
        image.info.pop("transparency", None)  # Pillow would warn of losing it
    return np.asarray(image.convert(colours))


def _check_size(image: Any, height: Dimension, width: Dimension, spec: TensorSpec, max_bytes: int) -> None:
    """Raises InvalidRequest, BodyTooLarge: before anything is decoded."""
    if image.height != (height or image.height) or image.width != (width or image.width):
        expected = ", ".join(f"{name} {size}" for name, size in (("height", height), ("width", width)) if size)
        raise InvalidRequest(
            f"The image has height {image.height} and width {image.width}; expected {expected} for input"
            f" {spec.name!r} {spec}"
        )
    if image.height * image.width * max(4, spec.dtype.itemsize * 3) > max_bytes:
        raise BodyTooLarge(
            f"The image's {image.width} x {image.height} pixels take more than max_body_bytes, {max_bytes} bytes"
        )


def _colours(mode: str, channels: list[Dimension]) -> str:
    own = _OWN_COLOURS.get(mode)
    if own is None:
        raise ValueError("expected 8 bits a channel")
    if not channels:
        return "L"
    return own if channels[0] is None else _COLOURS[channels[0]]


def _reason(error: BaseException) -> str:
    """Without the address of the file in memory that Pillow may name."""
    return "it cannot be read" if "<_io." in str(error) else str(error)[:256] or type(error).__name__


JPEG = BodyForm(("image/jpeg",), partial(read, "JPEG"), also_read=("image/jpg",))
PNG = BodyForm(("image/png",), partial(read, "PNG"))

FORMS = (JPEG, PNG)
