"""Every knob of Ferry: its unit in its name, its default, and one line of why.

One definition serves three sources, strongest first: command-line flags, `FERRY_*`
environment variables, a YAML file named by `FERRY_CONFIG` (or `--config`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

CONFIG_VARIABLE = "FERRY_CONFIG"


class Settings(BaseSettings):
    """See the field descriptions; `ferry serve --help` prints them."""

    model_config = SettingsConfigDict(env_prefix="FERRY_", extra="forbid", frozen=True, protected_namespaces=())

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104 - a container serves its network
    rest_port: int = Field(8501, ge=0, le=65535, description="HTTP port; TensorFlow Serving's. 0 takes a free one.")
    models: Path = Field(Path("models"), description="Folder of models: <name>/<version>/saved_model.pb.")
    default_model: str = Field("", description="Model behind POST /predict; may stay empty where there is one model.")
    poll_interval_s: PositiveFloat = Field(1.0, description="How often the models folder is looked at.")

    max_batch_size: PositiveInt = Field(64, description="Most rows in one call of a model.")
    batch_sizes: list[PositiveInt] = Field(
        default_factory=list,
        description="Row counts that batches are padded to, ascending, the last being max_batch_size; "
        "empty takes the powers of two.",
    )
    max_batch_delay_ms: NonNegativeFloat = Field(
        0.0, description="How long an idle device waits for company. 0 means 0: batches fill while the device works."
    )
    max_queue_size: PositiveInt = Field(8192, description="Most rows that may wait; beyond it requests get 503.")
    request_timeout_ms: PositiveFloat = Field(30_000.0, description="Time a request has from arrival to answer.")
    batches_in_flight: PositiveInt = Field(1, description="Batches that one device works on at the same time.")
    batching_policy: str = Field("work_conserving", description="How batches are closed; a name in batching/policy.py.")

    runtime: str = Field("tensorflow", description="What executes models; a name in runtime.py.")
    intra_op_threads: NonNegativeInt = Field(0, description="Threads inside one operation; 0 lets TensorFlow choose.")
    inter_op_threads: NonNegativeInt = Field(0, description="Operations at a time; 0 lets TensorFlow choose.")
    warm_up: bool = Field(True, description="Run every batch size once before a model counts as ready.")

    max_body_bytes: PositiveInt = Field(64 * 1024**2, description="Largest request body, inflated; beyond it 413.")
    drain_timeout_s: PositiveFloat = Field(30.0, description="Time accepted requests get to finish after SIGTERM.")
    stuck_after_s: PositiveFloat = Field(60.0, description="A batch that runs longer than this turns /livez red.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> Self:
        sizes = self.batch_sizes
        if sizes and (sorted(set(sizes)) != sizes or sizes[-1] != self.max_batch_size):
            raise ValueError(f"batch_sizes must ascend and end with max_batch_size {self.max_batch_size}, not {sizes}")
        if self.max_queue_size < self.max_batch_size:
            raise ValueError(
                f"max_queue_size {self.max_queue_size} must be at least max_batch_size {self.max_batch_size}"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get(CONFIG_VARIABLE)
        yaml = (YamlConfigSettingsSource(settings_cls, yaml_file=Path(file)),) if file else ()
        return (init_settings, env_settings, *yaml)
