"""The configuration of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.repository.version_policy import NEWEST, VersionPolicy

#: TensorFlow Serving's name for SavedModels.
TENSORFLOW = "tensorflow"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The name of a model, the folder that holds its version folders, and the policy that chooses among them.

    `labels` are further names of versions, by label; `platform` is the kind of model, as in TensorFlow Serving.
    """

    name: str
    base_path: Path
    policy: VersionPolicy = NEWEST
    labels: Mapping[str, int] = field(default_factory=dict)
    platform: str = TENSORFLOW
