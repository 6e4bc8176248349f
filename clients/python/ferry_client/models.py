"""Models as callers name them, and as servers describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which model is meant: `version` is empty for the newest, `signature` for the default."""

    name: str
    version: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """An input or output.

    Attributes:
        dtype: None where numpy or the protocol has no such type.
        shape: None stands for a size that is free; the whole is None where even the rank is.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model's signature, and the versions that it can be called at."""

    name: str
    versions: tuple[str, ...]
    inputs: Mapping[str, TensorMetadata]
    outputs: Mapping[str, TensorMetadata]


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One version of a model. `reason` says why it cannot be called, where that is known."""

    name: str
    version: str
    ready: bool
    reason: str = ""


def tensor_metadata(name: str, dtype: np.dtype[Any] | None, sizes: list[int] | None) -> TensorMetadata:
    """From sizes as the wire has them: -1 is free."""
    return TensorMetadata(name, dtype, None if sizes is None else tuple(n if n >= 0 else None for n in sizes))
