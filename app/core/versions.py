"""The states of one version of a model, named as in TensorFlow Serving."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class VersionState(StrEnum):
    """TensorFlow Serving's ModelVersionStatus.State."""

    START = "START"
    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """The state of a version. `error_message` is empty unless its load or unload failed."""

    version: int
    state: VersionState
    error_message: str = ""
