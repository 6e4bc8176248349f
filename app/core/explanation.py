"""What there is to say about the batches of a model, as documents: what was set, what was learnt, what would help."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

#: Why requests run alone though the signature's shapes would let them share calls.
ROWS_LOST = "each request runs alone: in a batch the outputs did not have a row for each row of the inputs"


class _Document(BaseModel):
    """Times are in milliseconds, shares from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Options(_Document):
    """How the batches of a model are formed; BatchingOptions as a document."""

    max_batch_size: int = Field(ge=0, description="Most rows in one call; 0: as many as the model was warmed up with.")
    max_batch_delay_ms: float = Field(ge=0, description="How long an idle device waits for company.")
    target_p99_ms: float = Field(
        ge=0,
        description="Batches of self_tuning are so small that a call and the one before take no longer; 0: no target.",
    )
    weight: float = Field(
        ge=0, description="The model's share of the devices' time beside other models; 0: none of its own."
    )
    policy: str = Field(description="self_tuning or work_conserving.")


class Durations(_Document):
    """Estimated from a histogram, except for the mean."""

    mean: float
    p50: float
    p90: float
    p99: float


class BatchSize(_Document):
    """Batches that were computed with so many rows, padding counted."""

    size: int
    calls: int
    rows: int = Field(description="Rows that requests had in these batches.")


class Padding(_Document):
    """What was computed for nobody."""

    rows: int = Field(description="Rows added to reach an allowed batch size.")
    row_share: float = Field(description="Of the rows that were computed.")
    compute_share: float = Field(description="Of what was computed, shorter inputs padded to longer ones counted too.")


class CallCost(_Document):
    """What a call with so many rows takes."""

    rows: int
    ms: float
    measured: bool = Field(description="False where it was fitted to the sizes that were.")


class CostCurve(_Document):
    """Of calls with inputs of one shape, or of one bucket of shapes."""

    outputs: Sequence[str] = Field(description="The outputs wanted; empty for all.")
    shape: Sequence[Sequence[int]] = Field(description="The inner shape of each input: all but its first dimension.")
    bucket: bool = Field(description="Is it the largest shape of a bucket whose requests share calls?")
    efficient_rows: int = Field(description="More rows in a call make a row no cheaper.")
    calls: Sequence[CallCost]


class Variant(_Document):
    """How calls of a batch size are executed."""

    batch_size: int
    variant: str
    speed_up: float = Field(description="How many times as fast as the plain SavedModel.")


class Shapes(_Document):
    """Do requests of different inner shapes share calls?"""

    free: bool = Field(description="Do inner shapes differ at all?")
    shared: bool
    explanation: str


class SignatureExplanation(_Document):
    """Of the calls of one signature."""

    signature: str
    batched: bool = Field(description="May rows of several requests share a call?")
    calls: int
    requests: int = Field(description="One that was computed in parts counts for each.")
    rows: int
    rows_per_call: float
    requests_per_call: float
    batch_sizes: Sequence[BatchSize]
    closed_by: dict[str, int] = Field(description="Why batches were closed: full, idle, delay or drain.")
    wait_ms: Durations | None = Field(description="What requests waited for their calls to begin.")
    compute_ms: Durations | None = Field(description="What calls took.")
    padding: Padding
    speed_up: float | None = Field(
        description="How many times as long the same rows would have taken one by one; null where not measured."
    )
    answers: dict[str, int] = Field(description="Requests answered, by status code over all protocols.")
    costs: Sequence[CostCurve]
    costs_left_out: int = Field(description="Curves of further shapes that are not listed.")
    variants: Sequence[Variant]
    shapes: Shapes


class VersionExplanation(_Document):
    """Of one version of a model."""

    version: int
    counted_for_s: float = Field(description="Seconds since it was loaded, or its options were changed.")
    batch_sizes: Sequence[int] = Field(description="The row counts that the model is called with.")
    signatures: Sequence[SignatureExplanation]


class BatchingExplanation(_Document):
    """Everything about the batches of a model, newest version first."""

    model: str
    options: Options
    advice: Sequence[str] = Field(description="What would help, in plain sentences.")
    versions: Sequence[VersionExplanation]
