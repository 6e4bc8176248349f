"""A list of models to serve as a message: what a caller's HandleReloadConfigRequest asks of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.repository.model_config import ModelConfig
from app.repository.version_policy import All, Latest, Specific, VersionPolicy


def encode_models(configs: Sequence[ModelConfig]) -> list[tuple[Any, ...]]:
    return [
        (each.name, str(each.base_path), _encode_policy(each.policy), dict(each.labels), each.platform)
        for each in configs
    ]


def decode_models(models: Sequence[tuple[Any, ...]]) -> list[ModelConfig]:
    return [
        ModelConfig(name, Path(base_path), _decode_policy(*policy), labels, platform)
        for name, base_path, policy, labels, platform in models
    ]


def _encode_policy(policy: VersionPolicy) -> tuple[str, Sequence[int]]:
    """Its kind and numbers."""
    match policy:
        case Latest():
            return "latest", (policy.count,)
        case Specific():
            return "specific", sorted(policy.versions)
        case _:
            return "all", ()


def _decode_policy(kind: str, numbers: Sequence[int]) -> VersionPolicy:
    match kind:
        case "latest":
            return Latest(*numbers)
        case "specific":
            return Specific(frozenset(numbers))
        case _:
            return All()
