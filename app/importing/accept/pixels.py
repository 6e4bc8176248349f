"""Ranges of pixels that models take: decoded values 0 to 255, and the ranges of keras.applications.

Each is a formula that holds for arrays and for tensors. The last axis are the colours: red, green, blue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The means of ImageNet's colours, and their deviations, as keras.applications has them.
_TORCH_MEAN, _TORCH_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CAFFE_MEAN = (103.939, 116.779, 123.68)

#: What is taken if `--pixels` says nothing.
AS_DECODED = "0..255"

#: By the value of `--pixels`, the function of pixels from 0 to 255, in float32.
RANGES: dict[str, Callable[[Any], Any]] = {
    AS_DECODED: lambda pixels: pixels,
    "0..1": lambda pixels: pixels / 255.0,
    "-1..1": lambda pixels: pixels / 127.5 - 1.0,
    "caffe": lambda pixels: pixels[..., ::-1] - _CAFFE_MEAN,
    "torch": lambda pixels: (pixels / 255.0 - _TORCH_MEAN) / _TORCH_DEVIATION,
}

#: Ranges that have a number for each of three colours.
OF_COLOURS = {"caffe", "torch"}
