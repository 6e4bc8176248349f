"""The JSON document that explains the batching of a model: its options, measurements, and advice."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from app.core.batch_sizes import MOST_DELAY_MS, MOST_TARGET_MS, MOST_WEIGHT

#: The reason why requests run alone although the shapes of the signature would allow shared calls.
ROWS_LOST = "each request runs alone: in a batch the outputs did not have a row for each row of the inputs"

#: The beginning of the reason why requests run alone although nothing speaks against shared calls.
NOT_PROVEN = "it is not proven yet that rows do not see each other"

#: A part of the reason why requests run alone whose inputs or outputs have no rows by their shapes.
NO_ROWS = "without a free first dimension"

#: The text in place of all facts about calls: the calls of a pipeline are its models'.
NO_CALLS_OF_ITS_OWN = "a pipeline has no calls of its own: see the pages of its models"


class _Document(BaseModel):
    """The base of all documents here. Times are in milliseconds, shares from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BatchingOptionsDocument(_Document):
    """BatchingOptions as a document: the rules by which batches of a model are formed."""

    max_batch_size: int = Field(ge=0, description="Most rows in one call; 0: as many as the model was warmed up with.")
    max_batch_delay_ms: float = Field(
        ge=0, le=MOST_DELAY_MS, description="Milliseconds that an idle device waits for more requests."
    )
    target_p99_ms: float = Field(
        ge=0,
        le=MOST_TARGET_MS,
        description="Batches of self_tuning are so small that a call and the one before take no longer; 0: no target.",
    )
    weight: float = Field(
        ge=0,
        le=MOST_WEIGHT,
        description="The model's share of the devices' time beside other models; 0: none of its own.",
    )


class DurationsDocument(_Document):
    """Durations in milliseconds; all but the mean are estimated from a histogram."""

    mean: float
    p50: float
    p90: float
    p99: float


class BatchSizeDocument(_Document):
    """The batches of `size` rows, padding rows included."""

    size: int
    calls: int
    rows: int = Field(description="Rows of requests in these batches, without padding.")


class PaddingDocument(_Document):
    """The share of padding in computed rows and elements."""

    rows: int = Field(description="Rows added to reach an allowed batch size.")
    row_share: float = Field(description="Share of the computed rows that were padding.")
    compute_share: float = Field(
        description="Share of the computed elements that were padding, of rows and of inner shapes."
    )


class CallCostDocument(_Document):
    """The cost of a call with `rows` rows, in milliseconds."""

    rows: int
    ms: float
    measured: bool = Field(description="False if it was interpolated from sizes that were measured.")
    machine_ms: float | None = Field(
        None,
        description="Milliseconds that it takes of the machine at its usual speed: with the time since the call "
        "before, shared by the calls at a time. By them batch sizes are chosen.",
    )


class CostCurveDocument(_Document):
    """The costs of calls with inputs of one shape, or of one bucket of shapes."""

    outputs: Sequence[str] = Field(description="The outputs wanted; empty for all.")
    shape: Sequence[Sequence[int]] = Field(description="The inner shape of each input: all but its first dimension.")
    bucket: bool = Field(description="Whether the shape is the largest of a bucket whose requests share calls.")
    efficient_rows: int = Field(description="Rows in a call from which on more rows make a row no cheaper.")
    calls: Sequence[CallCostDocument]


class VariantDocument(_Document):
    """The execution variant of one batch size."""

    batch_size: int
    variant: str
    speed_up: float = Field(description="How many times as fast as the plain SavedModel.")


class MixedShapesDocument(_Document):
    """The verdict on shared calls of requests of different inner shapes."""

    free: bool | None = Field(description="Whether the signature allows different inner shapes; null for a pipeline.")
    shared: bool | None
    explanation: str


class SignatureExplanation(_Document):
    """The calls of one signature."""

    signature: str
    batched: bool | None = Field(description="Whether rows of several requests may share a call; null for a pipeline.")
    alone: str = Field("", description="Why each request runs alone and unpadded; empty if rows share calls.")
    proof: str = Field(
        "",
        description="What proves that no row sees another one: graph, probe or traffic; row_independence if that "
        "setting says assume. Empty if each request runs alone.",
    )
    most_rows: int = Field(1, description="Most rows of a call that requests may share by now.")
    calls: int
    requests: int = Field(description="A request that was computed in parts counts once for each part.")
    rows: int
    rows_per_call: float
    requests_per_call: float
    batch_sizes: Sequence[BatchSizeDocument]
    closed_by: dict[str, int] = Field(description="Why batches were closed: full, idle, delay, drain or retry.")
    wait_ms: DurationsDocument | None = Field(description="Time from arrival to the start of the call.")
    compute_ms: DurationsDocument | None = Field(description="Duration of calls.")
    padding: PaddingDocument
    speed_up: float | None = Field(
        description="How many times as long the same rows would have taken one by one; null where not measured."
    )
    answers: dict[str, int] = Field(description="Requests answered, by status code over all protocols.")
    costs: Sequence[CostCurveDocument]
    costs_left_out: int = Field(description="Curves of further shapes that are not listed.")
    variants: Sequence[VariantDocument]
    shadow_checks: dict[str, int] = Field(
        default_factory=dict,
        description="Requests computed again, alone and plain, by result: agrees; variant, padding or sharing if that "
        "changed the answer and is not used any more; random; failed.",
    )
    shapes: MixedShapesDocument


class StepExplanation(_Document):
    """One step of a pipeline. Shares of time are of the whole time of requests; steps side by side add up to more."""

    step: str
    models: Sequence[str] = Field(description="Those that it calls now, as name/version.")
    needs: Sequence[str] = Field(description="The steps whose outputs it reads.")
    condition: Sequence[str] | None = Field(
        description="The steps that its 'when' reads, none if that reads inputs alone; null without 'when'."
    )
    forms: Sequence[str] = Field(description="Which of each, fold and optional it has.")
    computed: int = Field(description="Requests.")
    passed_over: int = Field(description="Requests of which no row was left for it.")
    failed: int = Field(description="Requests at which it failed.")
    rows: int = Field(description="Rows that it computed; of a box or another element its row.")
    row_share: float = Field(description="Their share of the rows that requests had at this step.")
    rows_per_call: float = Field(description="Rows in the call of a request, on average over requests.")
    wait_ms: DurationsDocument | None
    compute_ms: DurationsDocument | None
    wait_share: float = Field(description="Share of the time of requests in which they waited at this step.")
    compute_share: float = Field(description="Share of the time of requests in which this step was computed.")
    elsewhere_share: float = Field(
        description="Share of the requests to its models that were direct, or of other pipelines and other steps."
    )


class PipelineExplanation(_Document):
    """The requests that went through one version of a pipeline, and its steps."""

    missing: str = Field(description="Why it answers no requests now, such as a model that is gone; empty if it does.")
    requests: dict[str, int] = Field(description="By outcome: answered, failed, cancelled or rejected.")
    total_ms: DurationsDocument | None = Field(description="Of each that was not rejected, from arrival to end.")
    overhead_share: float = Field(description="Share of their time in which no step waited or was computed.")
    steps: Sequence[StepExplanation]


class VersionExplanation(_Document):
    """One version of a model."""

    version: int
    note: str = Field("", description="How it was loaded, where that is unusual, and why; empty if it is not.")
    counted_for_s: float = Field(description="Seconds since it was loaded, or its options were changed.")
    batch_sizes: Sequence[int] = Field(description="The row counts that the model is called with.")
    signatures: Sequence[SignatureExplanation]
    pipeline: PipelineExplanation | None = Field(None, description="Of a pipeline its steps; null for other models.")


class BatchingExplanation(_Document):
    """The batching of a model, newest version first."""

    model: str
    options: BatchingOptionsDocument
    advice: Sequence[str] = Field(description="What would help, in plain sentences.")
    versions: Sequence[VersionExplanation]
