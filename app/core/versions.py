"""The life of one version of a model, in TensorFlow Serving's words."""

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
    """Where a version is in its life. `error_message` is empty unless it ended by an error."""

    version: int
    state: VersionState
    error_message: str = ""
