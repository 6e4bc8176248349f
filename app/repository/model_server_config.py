"""TensorFlow Serving's ModelServerConfig, from a file or a reload request, as a list of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.codecs.protobuf.text_format import parse_text
from app.core.errors import InvalidRequest
from app.repository.model_config import TENSORFLOW, ModelConfig
from app.repository.version_policy import All, Latest, Specific, VersionPolicy

_NAME = "tensorflow.serving.ModelServerConfig"
_MODEL_TYPES = {0: "", 1: TENSORFLOW}


def read_model_configs(file: Path, *, at_start: bool = False) -> Sequence[ModelConfig]:
    """The list in a file of --model_config_file, blocking.

    Args:
        at_start: an empty file is no models. Later it is one that is being written, and rejected.

    Raises:
        InvalidRequest: it is no such list.
        OSError: it cannot be read.
    """
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest(f"Error parsing text-format {_NAME}: {file} is no text") from None
    message = parse_text(text, _NAME)
    return [] if at_start and message.WhichOneof("config") is None else decode_model_configs(message)


def decode_model_configs(message: Any) -> Sequence[ModelConfig]:
    """The list in a ModelServerConfig. Raises InvalidRequest: it holds what cannot be served."""
    match message.WhichOneof("config"):
        case "custom_model_config":
            raise InvalidRequest("custom_model_config is not supported; use model_config_list")
        case None:
            raise InvalidRequest(f"{_NAME} holds no model_config_list; to serve no models, give an empty one")
    return [_decode(model) for model in message.model_config_list.config]


def _decode(model: Any) -> ModelConfig:
    if model.HasField("logging_config"):
        raise InvalidRequest(f"Model {model.name}: logging_config is not supported; leave it out")
    platform = model.model_platform or _MODEL_TYPES.get(model.model_type, "other") or TENSORFLOW
    return ModelConfig(
        model.name,
        Path(model.base_path),
        _policy(model.name, model.model_version_policy),
        dict(model.version_labels),
        platform,
    )


def _policy(name: str, policy: Any) -> VersionPolicy:
    match policy.WhichOneof("policy_choice"):
        case "specific":
            versions = frozenset(policy.specific.versions)
            if not versions:
                raise InvalidRequest(f"Model {name}: model_version_policy specific names no versions")
            return Specific(versions)
        case "all":
            return All()
        case _:
            return Latest(policy.latest.num_versions or 1)
