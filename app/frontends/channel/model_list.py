"""A list of models to serve as a message: what a caller's HandleReloadConfigRequest asks of the engine.

It travels as JSON, since the process that sends it faces strangers.
"""

from __future__ import annotations

from pydantic import TypeAdapter

from app.repository.model_config import ModelConfig

MODEL_LIST = TypeAdapter(list[ModelConfig])
