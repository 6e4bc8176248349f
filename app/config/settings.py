"""Every knob of Ferry: its unit in its name, its default, and one line of why.

This is their one definition; config/sources.py says where values come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.config.values import Links, Names, Sizes, Values, Weights

PREFIX = "FERRY_"


class Settings(BaseSettings):
    """See the field descriptions; `ferry serve --help` prints them.

    Made from arguments alone; `settings_sources.load_settings` reads the environment and the file too.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, protected_namespaces=()
    )

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104 - a container serves its network
    rest: bool = Field(True, description="Serve HTTP; without it only gRPC is served, and there are no health pages.")
    rest_port: int = Field(8501, ge=0, le=65535, description="HTTP port; TensorFlow Serving's. 0 takes a free one.")
    grpc_port: int = Field(8500, ge=0, le=65535, description="gRPC port; TensorFlow Serving's. 0 takes a free one.")
    grpc_unix_socket: str = Field("", description="Path of a Unix socket that serves gRPC too; empty for none.")
    grpc_max_message_bytes: PositiveInt = Field(
        64 * 1024**2, le=2**31 - 1, description="Largest gRPC request; beyond it RESOURCE_EXHAUSTED."
    )
    tensor_content: bool = Field(
        True, description="TensorFlow's gRPC outputs are raw bytes, which is fast; without it lists of numbers."
    )
    cors: bool = Field(False, description="Let web pages of any origin send requests.")
    metrics_path: str = Field(
        "", pattern="^(/[^/?#][^?#]*)?$", description="Metrics also lie here, by TensorFlow Serving's names too."
    )
    models: Path = Field(Path("models"), description="Folder of models: <name>/<version>/saved_model.pb.")
    default_model: str = Field("", description="Model behind POST /predict; may stay empty where there is one model.")
    poll_interval_s: NonNegativeFloat = Field(1.0, description="How often model folders are looked at. 0 looks once.")
    wait_for_models: bool = Field(
        False, description="Take requests only when every model is loaded; end where one cannot be."
    )

    batching: bool = Field(True, description="Run requests in batches; without it each runs alone, just as it came.")
    max_batch_size: PositiveInt = Field(64, description="Most rows in one call of a model.")
    batch_sizes: Sizes = Field(
        default_factory=list,
        description="Row counts that batches are padded to, ascending, the last being max_batch_size; "
        "empty takes the powers of two.",
    )
    pad_shapes: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Pad requests of different inner shapes so that they share a batch: auto where warm-up finds that "
        "answers stay the same.",
    )
    shape_buckets: Sizes = Field(
        default_factory=list,
        description="Sizes of a free inner dimension up to which requests share a batch, ascending, such as 64,256; "
        "empty takes 8, 12, 16, 24, 32, 48 and so on.",
    )
    pad_values: Values = Field(
        default_factory=dict,
        description="What inputs are padded with, by name or <model>/<input>, such as tokens=1,bert/mask=0; "
        "others with 0 or the empty string.",
    )
    mask_inputs: Links = Field(
        default_factory=dict,
        description="Masks and lengths that callers may leave out, by name or <model>/<input>, and the input that each "
        "tells of, such as bert/mask=tokens: Ferry fills in what is real before it pads.",
    )
    max_batch_delay_ms: NonNegativeFloat = Field(
        0.0,
        allow_inf_nan=False,
        description="How long an idle device waits for company. 0 means 0: batches fill while the device works.",
    )
    max_pause_ms: NonNegativeFloat = Field(
        2.0,
        allow_inf_nan=False,
        description="While the process is short of CPU, a device pauses up to this long after a call shorter than this "
        "until as many rows wait as were under way of late. A lone client never waits; 0 pauses never.",
    )
    max_inline_ms: NonNegativeFloat = Field(
        1.0,
        description="A model whose calls take less, unless hindered, is called on the event loop: handing such a call "
        "to a thread costs more. 0 always takes the thread.",
    )
    target_p99_ms: NonNegativeFloat = Field(
        0.0,
        allow_inf_nan=False,
        description="Batches are kept so small that a call and the wait for the one before take no longer; 0 for none. "
        "Of self_tuning alone.",
    )
    admission: bool = Field(
        True,
        description="Reject a request at once, saying when to try again, if it would foreseeably miss its deadline.",
    )
    max_queue_size: PositiveInt = Field(
        8192, validate_default=True, description="Most rows that may wait; beyond it requests get 503."
    )
    request_timeout_ms: PositiveFloat = Field(30_000.0, description="Time a request has from arrival to answer.")
    batches_in_flight: NonNegativeInt = Field(
        0,
        description="Batches that one device works on at the same time. 0 takes 1 on a GPU; on a CPU one for every 4 "
        "cores, and 2 where there are 2 cores or more.",
    )
    replicas: NonNegativeInt = Field(
        1, description="GPUs that have a replica of each model, each working on batches of its own; 0 for all GPUs."
    )
    preserve_order: bool = Field(
        False,
        description="With several batches under way, answer requests that may share a batch in the order in which they "
        "came: who is done early waits.",
    )
    model_weights: Weights = Field(
        default_factory=dict,
        description="Shares of the devices' time that busy models get, such as bert=3,resnet=1; others count 1. Empty: "
        "the earliest deadline goes first, whatever the model.",
    )
    batching_policy: str = Field(
        "self_tuning",
        description="How batches are formed; a name in batching/policy.py. self_tuning chooses their sizes by measured "
        "costs, work_conserving takes all that waits.",
    )

    per_model_batching: bool = Field(
        False, description="Let batching_params.pbtxt in a version's folder set the batch sizes of that version."
    )
    strict_shapes: bool = Field(
        True, description="Reject tensors whose shape does not fit the signature; without it they run alone."
    )

    runtime: str = Field("tensorflow", description="What executes models; a name in runtime.py.")
    intra_op_threads: NonNegativeInt = Field(
        0, description="Threads inside one operation; 0 shares the cores among the batches in flight."
    )
    inter_op_threads: NonNegativeInt = Field(0, description="Operations at a time; 0 lets TensorFlow choose.")
    warm_up: bool = Field(True, description="Run every batch size once before a model counts as ready.")
    execution_variant: Literal["auto", "plain", "frozen", "xla"] = Field(
        "auto",
        description="How models are executed: as they are, with constants for variables, or compiled by XLA; "
        "auto measures at warm-up.",
    )
    forbidden_variants: Names[Literal["frozen", "xla"]] = Field(
        default_factory=list, description="Variants that auto does not try, such as frozen,xla."
    )
    variant_search_s: NonNegativeFloat = Field(
        20.0, description="Most time that auto takes to measure the variants of one model."
    )
    variant_cache: str = Field(
        "", description="Folder that remembers what auto chose; empty takes ferry in the user's cache folder."
    )
    frozen_limit_mb: NonNegativeInt = Field(
        64, description="Larger variables are not turned into constants, which take 7 times their size, 17 while made."
    )

    max_body_bytes: PositiveInt = Field(64 * 1024**2, description="Largest request body, inflated; beyond it 413.")
    allow_shared_memory: bool = Field(
        False, description="Let clients of this machine pass tensors through system shared memory (Open Inference)."
    )
    frontends: NonNegativeInt = Field(
        0,
        description="HTTP processes before the process that executes models; 0 does all in one process. "
        "Worth it where one core cannot read and write as fast as models compute.",
    )
    drain_timeout_s: PositiveFloat = Field(30.0, description="Time accepted requests get to finish after SIGTERM.")
    stuck_after_s: PositiveFloat = Field(60.0, description="A batch that runs longer than this turns /livez red.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )

    @field_validator("shape_buckets")
    @classmethod
    def _buckets_ascend(cls, sizes: list[int]) -> list[int]:
        if sorted(set(sizes)) != sizes:
            raise ValueError("ascending numbers such as 64,256")
        return sizes

    @field_validator("batch_sizes")
    @classmethod
    def _sizes_ascend(cls, sizes: list[int], others: ValidationInfo) -> list[int]:
        largest = others.data.get("max_batch_size")
        if sizes and (sorted(set(sizes)) != sizes or (largest is not None and sizes[-1] != largest)):
            raise ValueError(f"ascending numbers that end with max_batch_size, {largest}")
        return sizes

    @field_validator("max_queue_size")
    @classmethod
    def _queue_holds_a_batch(cls, size: int, others: ValidationInfo) -> int:
        if size < others.data.get("max_batch_size", 0):
            raise ValueError(f"at least max_batch_size, {others.data['max_batch_size']}")
        return size

    @field_validator("frontends")
    @classmethod
    def _frontends_have_work(cls, frontends: int, others: ValidationInfo) -> int:
        if frontends and not others.data.get("rest", True):
            raise ValueError("0 where rest is off: frontends serve HTTP")
        if frontends and others.data.get("allow_shared_memory"):
            raise ValueError("0 with allow_shared_memory: regions are known to one process only")
        return frontends

    @field_validator("batching_policy")
    @classmethod
    def _policy_is_known(cls, name: str) -> str:
        from app.batching.policy import policy_names  # noqa: PLC0415 - `ferry --help` needs no numpy

        return _one_of(name, policy_names())

    @field_validator("runtime")
    @classmethod
    def _runtime_is_known(cls, name: str) -> str:
        from app.runtime import runtime_names  # noqa: PLC0415 - as above

        return _one_of(name, runtime_names())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the base class's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def _one_of(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(f"one of: {', '.join(known)}")
    return name
