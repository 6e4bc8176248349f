"""Models as callers name them, and as servers describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Names a model. An empty `version` means the newest, an empty `signature` the default."""

    name: str
    version: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """An input or output.

    Attributes:
        dtype: None if numpy or the protocol has no such type.
        shape: None in it is a free size; None instead of it means that the rank is unknown.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model's signature, and its versions that can be called."""

    name: str
    versions: tuple[str, ...]
    inputs: Mapping[str, TensorMetadata]
    outputs: Mapping[str, TensorMetadata]


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One version of a model. `reason` says why it cannot be called, if the server says so."""

    name: str
    version: str
    ready: bool
    reason: str = ""


def tensor_metadata(name: str, dtype: np.dtype[Any] | None, sizes: list[int] | None) -> TensorMetadata:
    """From sizes as protocols write them: -1 is a free size."""
    return TensorMetadata(name, dtype, None if sizes is None else tuple(n if n >= 0 else None for n in sizes))
