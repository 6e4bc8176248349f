"""Batches: which requests share a call, when it begins, on which devices, what may wait and in which order."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from app.config.rules import AscendingSizes
from app.config.values import Links, Rows, Sizes, Values, Weights
from app.core.batch_sizes import (
    MOST_BATCH_ROWS,
    MOST_BATCH_SIZES,
    MOST_BATCHES_IN_FLIGHT,
    MOST_DELAY_MS,
    MOST_INLINE_MS,
    MOST_QUEUE_ROWS,
    MOST_TARGET_MS,
    MOST_TIMEOUT_MS,
)

DEFAULT_MAX_INLINE_MS = 1.0


class BatchingSettings(BaseModel):
    """Batches, padding, devices, the queue and the order within it."""

    batching: bool = Field(
        True, description="Run requests in batches. If off, each request is a call of its own, without padding."
    )
    max_batch_size: PositiveInt = Field(64, le=MOST_BATCH_ROWS, description="Most rows in one call of a model.")
    batch_sizes: Sizes = Field(
        default_factory=list,
        max_length=MOST_BATCH_SIZES,
        description="Row counts that batches are padded to, ascending; the last must equal max_batch_size. "
        "Empty: the powers of two up to max_batch_size.",
    )
    row_independence: Rows = Field(
        default_factory=dict,
        description="Whether rows of several requests may share a call, by <model> or <model>/<signature>, or * for "
        "all, such as bert=assume,gan/train=deny. probe: once its graph, calls at load, or requests that were computed "
        "alone and together prove that no row sees another one; until then each request runs alone and unpadded. "
        "assume: always, without proof. deny: never. Others: probe.",
    )
    pad_shapes: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Pad requests of different inner shapes so that they can share a batch. auto: only if calls "
        "in the background show that padding does not change the answers. always: also if it changes them. never: "
        "only requests of equal shapes share a batch.",
    )
    shape_buckets: AscendingSizes = Field(
        default_factory=list,
        max_length=MOST_BATCH_SIZES,
        description="Upper bounds of the buckets into which sizes of a free inner dimension are grouped, ascending, "
        "such as 64,256; requests of one bucket share a batch. Empty: 8, 10, 12, 14, 16, 20, 24, 28, 32 and so on.",
    )
    pad_values: Values = Field(
        default_factory=dict,
        description="Value that an input is padded with, by <input> or <model>/<input>, such as tokens=1,bert/mask=0. "
        "Other inputs are padded with 0 or the empty string. A model with an input that cannot hold its value is not "
        "served.",
    )
    mask_inputs: Links = Field(
        default_factory=dict,
        description="Masks and lengths that requests may leave out, by <input> or <model>/<input>, and the input that "
        "each describes, such as bert/mask=tokens. Ferry computes them from the size of that input before padding.",
    )
    max_batch_delay_ms: NonNegativeFloat = Field(
        0.0,
        le=MOST_DELAY_MS,
        allow_inf_nan=False,
        description="Milliseconds that an idle device waits for more requests before it starts a batch that is not "
        "full. With 0 it starts at once; batches fill while the device is busy.",
    )
    max_inline_ms: NonNegativeFloat = Field(
        DEFAULT_MAX_INLINE_MS,
        le=MOST_INLINE_MS,
        allow_inf_nan=False,
        description="Calls that are known to take less than this many milliseconds, by their shape and batch size, are "
        "made on the event loop, because handing them to a thread costs more. 0: always on a thread.",
    )
    target_p99_ms: NonNegativeFloat = Field(
        0.0,
        le=MOST_TARGET_MS,
        allow_inf_nan=False,
        description="Batches are kept so small that a call, plus the wait for the call before it, takes at most this "
        "many milliseconds. 0: no target.",
    )
    admission: bool = Field(
        True,
        description="Reject a request at once, with the time after which to retry, if it is expected to miss its "
        "deadline. If off, it waits and expires.",
    )
    max_queue_size: NonNegativeInt = Field(
        8192,
        le=MOST_QUEUE_ROWS,
        validate_default=True,
        description="Most rows that may wait in the queue. Requests beyond it are rejected with 503, but a larger one "
        "is computed in parts while less than half is taken. If several models are served, half is kept for them, "
        "by weight. 0: as many as memory_budget_mb has room for.",
    )
    memory_budget_mb: NonNegativeInt = Field(
        0,
        le=2**30,  # chosen: a number of bytes given by mistake
        description="Megabytes for what clients send and have not read: half of it for the tensors that wait in the "
        "queue, half for bodies of requests that are not answered and for replies that are not read, shared among "
        "frontends. Beyond it, requests are rejected with 503, long HTTP bodies unread. 0: a quarter of the memory "
        "that the machine or its container has left at the start.",
    )
    request_timeout_ms: PositiveFloat = Field(
        30_000.0,
        le=MOST_TIMEOUT_MS,
        allow_inf_nan=False,
        description="Milliseconds from the arrival of a request to its answer; after that it expires.",
    )
    batches_in_flight: NonNegativeInt = Field(
        0,
        le=MOST_BATCHES_IN_FLIGHT,
        description="Batches that one device computes at the same time. 0: 2 on a GPU; on a CPU one for every 4 "
        "cores, but 2 if there are at least 2 cores.",
    )
    replicas: NonNegativeInt = Field(
        1,
        description="Number of GPUs that hold a replica of each model; each computes batches of its own. 0: all GPUs.",
    )
    tensor_float_32: bool = Field(
        True,
        description="Let GPUs compute products of float32 in TF32, as TensorFlow does by itself: faster for large "
        "models, but factors are rounded to 11 binary digits, so that the number of rows in a call changes an answer "
        "in its third or fourth digit. If off, float32 is what it says.",
    )
    preserve_order: bool = Field(
        False,
        description="Answer requests that may share a batch in order of arrival, even if several batches are in "
        "flight: a batch that is done early waits for the earlier ones.",
    )
    model_weights: Weights = Field(
        default_factory=dict,
        description="Weights by which busy models share the devices' time, and by which room in the queue is kept for "
        "them, such as bert=3,resnet=1; a model that is not listed has weight 1. Empty: equal room, and time is not "
        "shared; the earliest deadline goes first, whatever the model.",
    )
    fair_callers: str = Field(
        "",
        pattern=r"^(|key|address|header:[A-Za-z0-9!#$%&'*+.^_`|~-]+)$",
        description="How callers are told apart, so that one that sends much does not keep others waiting: key, by the "
        "name of their key or token (access_file), whose weights then count; address; or header:NAME, such as "
        "header:X-Team, a header or, in gRPC, a metadata key. Where a request has none, its address counts; who has "
        "proven a name, by a key or a token, is told by that in any case. Callers that wait get equal time of the "
        "devices, or by their weights, whatever models and shapes they send, and one fills at most half of the queue. "
        "Empty: order of arrival alone.",
    )
    per_model_batching: bool = Field(
        False, description="Read the batch sizes of a version from batching_params.pbtxt in the version's folder."
    )
    strict_shapes: bool = Field(
        True,
        description="Reject tensors whose shape does not fit the signature. If off, such a request runs in a call of "
        "its own, and the model decides; one with another number of dimensions is rejected where operations on images "
        "would end the process.",
    )
    max_row_elements: NonNegativeInt = Field(
        2**26,  # chosen: as many as max_body_bytes has bytes
        description="Most elements in one row of an input whose inner shape the signature leaves open, such as tokens "
        "or pixels: what a call takes in memory and time may grow with their square. A larger row is rejected with "
        "413. 0: no limit.",
    )

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
        if size and size < others.data.get("max_batch_size", 0):
            raise ValueError(f"at least max_batch_size, {others.data['max_batch_size']}, or 0")
        return size
