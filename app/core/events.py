"""Events: what happened to requests, batches and models. Metrics and logs listen to them.

A listener is called on the event loop; it must not block. What it raises is logged and harms no request. Events are
named tuples, since one is made for each request and a named tuple takes a quarter of the time of a frozen dataclass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from app.core.inference import BatchTiming, StepTiming

logger = logging.getLogger(__name__)


class BatchExecuted(NamedTuple):
    """One call of a model ended, with or without an error.

    rows: rows of requests in the batch; padded_rows: padding rows added to reach an allowed size.
    reason: why the batch was closed: 'full', 'idle', 'delay' or 'drain'; 'retry' of a group of a rejected batch.
    compute_s: seconds of the call; queue_s: seconds that each of its requests waited, in the order of the batch.
    failed, failed_rows: how many of its requests, and rows, were answered with an error.
    expired: how many of its requests were past their deadline when the call began; more than 0 is a bug.
    padding_ratio: which share of the elements of the call's inputs was padding, of rows and of inner shapes.
    input_s, output_s: the parts of compute_s in which inputs were put together, and outputs taken apart.
    """

    model: str
    version: int
    signature: str
    rows: int
    padded_rows: int
    reason: str
    compute_s: float
    queue_s: Sequence[float]
    failed: int = 0
    failed_rows: int = 0
    expired: int = 0
    padding_ratio: float = 0.0
    input_s: float = 0.0
    output_s: float = 0.0


class BatchRejected(NamedTuple):
    """One call of a model failed because of some of its requests, which are run again in smaller groups.

    requests, rows: of the call; compute_s: its seconds. Each group that succeeds is a BatchExecuted.
    """

    model: str
    version: int
    signature: str
    requests: int
    rows: int
    compute_s: float


class CallRepeated(NamedTuple):
    """A call of a model that was made because another one was rejected, which a BatchExecuted or BatchRejected tells.

    why: 'without_padding' or 'in_parts': it computed the request again; 'search': it repeated a row of it, to find how
    many rows the model takes. accepted: whether it succeeded. Its seconds are part of those of the batch.
    """

    model: str
    version: int
    signature: str
    why: str
    accepted: bool


class StepEnded(NamedTuple):
    """What became of one step of requests to a pipeline: computed, failed, or, if neither, passed over.

    rows: of the requests that it computed, of `of_rows` that they have there.
    timing: None if it was not computed.
    """

    step: str
    rows: int
    of_rows: int
    timing: StepTiming | None
    failed: bool


class PipelineEnded(NamedTuple):
    """Requests that went through a pipeline as one were answered, have failed or were cancelled, or were rejected.

    outcome: 'answered', 'failed', 'cancelled' or 'rejected'.
    rows: of all; of trees those of the kind that has most.
    seconds: from their arrival at the pipeline.
    overhead_s: the part of it in which no step of the longest way waited or was computed; 0 unless it was answered.
    timing: as its caller is told; of a request that was not answered no times.
    steps: those that were over when they ended.
    requests: their number.
    """

    pipeline: str
    version: int
    signature: str
    outcome: str
    rows: int
    seconds: float
    overhead_s: float
    timing: BatchTiming
    steps: Sequence[StepEnded]
    requests: int = 1


class RequestFinished(NamedTuple):
    """A protocol sent its answer. `code` is the protocol's own status; `seconds` are from parsing to the answer.

    model is '' and version 0 if the request did not reach a model.
    """

    protocol: str
    code: str
    model: str
    version: int
    signature: str
    seconds: float


class RequestsFinished(NamedTuple):
    """Requests that were answered together, or by a frontend: their labels are those of RequestFinished."""

    protocol: str
    code: str
    model: str
    version: int
    signature: str
    seconds: Sequence[float]


class RequestTraced(NamedTuple):
    """A request that finished was traced, by this span. `ended_at`: seconds since 1970.

    compute_span_id: the span of its share of a call that took `compute_s`; empty if it was not computed in one call.
    """

    protocol: str
    model: str
    version: int
    signature: str
    seconds: float
    trace_id: str
    span_id: str
    ended_at: float
    compute_s: float = 0.0
    compute_span_id: str = ""


class ConnectionsRejected(NamedTuple):
    """HTTP connections were closed although nobody did wrong.

    reason: 'full' or 'address', with 503, for `max_connections` and `max_connections_per_address`; 'gave_way': it
    waited for a request, and a new one took its place; 'handshake': of HTTP or gRPC, that of TLS failed.
    """

    reason: str
    number: int = 1


class RequestsRefused(NamedTuple):
    """Requests were answered with an error although nothing was wrong with them: a later retry may succeed.

    cause: 'queue_full'; 'late' (it would miss its deadline); 'expired' (it missed it); 'memory' (bodies and
    replies take all that is for them); 'shutting_down'.
    """

    cause: str
    number: int = 1


class AccessDenied(NamedTuple):
    """A request was answered with an error for want of a credential, a permission, or its rate.

    reason: see `ServingError.denied`. caller: its name, empty if it is not known. address: that it came from.
    request: what it asked for, such as `POST /v1/models/m:predict`, or `gRPC` and the path
    of a method.
    """

    reason: str
    caller: str
    protocol: str
    address: str
    request: str


class RequestsDenied(NamedTuple):
    """A frontend denied so many requests access for this reason; there is an AccessDenied for each."""

    reason: str
    number: int


class LogLinesDropped(NamedTuple):
    """A frontend dropped so many lines of its log, which nobody read."""

    number: int


class Administered(NamedTuple):
    """A caller changed what is served, or tried to: the fields are those of AccessDenied, and the protocol's status."""

    caller: str
    protocol: str
    address: str
    request: str
    code: str


class CredentialsLoaded(NamedTuple):
    """What credentials are compared with was read anew. source: 'file' or 'issuer'; result: 'loaded' or 'failed'.

    detail: of which file or issuer, and why it failed.
    """

    source: str
    result: str
    detail: str = ""


class ModelStateChanged(NamedTuple):
    """A version of a model entered a state. `error` is empty unless the load or unload failed."""

    model: str
    version: int
    state: str
    error: str = ""


class ReloadFailed(NamedTuple):
    """A version that is served could not be loaded anew, from changed files or another way; it serves on as it was."""

    model: str
    version: int
    error: str


class LabelsChanged(NamedTuple):
    """The labels of a model name other versions than before."""

    model: str


class ModelPlaced(NamedTuple):
    """A version that is being loaded has a replica on each of these devices; 'GPU:0+GPU:1' is one on both.

    note: how it was loaded, where that is unusual, and why; empty if it is not.
    """

    model: str
    version: int
    devices: Sequence[str]
    note: str = ""


class VariantsChosen(NamedTuple):
    """How a signature of a version that is being loaded will be executed.

    variants: for each batch size the execution variant and how many times as fast it is as the plain SavedModel.
    """

    model: str
    version: int
    signature: str
    variants: Mapping[int, tuple[str, float]]


class RowsProbed(NamedTuple):
    """Whether rows of several requests share calls of a signature, or each request runs alone, and why.

    proof: 'graph', 'probe', 'traffic', or 'row_independence' for the setting assume; empty if each runs alone.
    whole: each request runs alone whatever is proven: its tensors do not all have rows, or rows of several kinds.
    """

    model: str
    version: int
    signature: str
    alone: bool
    proof: str
    explanation: str
    whole: bool = False


class ShadowChecked(NamedTuple):
    """A request was computed again, alone and plain, after its answer was given or before.

    result: 'agrees'; 'variant', 'padding' or 'sharing' if that changed the answer, and is not used any more; 'random'
    if equal calls differ; 'failed'. `seconds`: how long it took.
    """

    model: str
    version: int
    signature: str
    result: str
    seconds: float


class RowsTried(NamedTuple):
    """Rows of requests that had been answered were computed together, to find out whether they may share calls.

    rows: of the call, padding included. result: 'agrees' with the answers given before; 'mixes'; 'doubtful' if one of
    two tries differed; 'rounded' if rounding explains what differs; 'random' if equal calls differ; 'variant' if the
    way of requests differs from the plain model; 'refused' by it. `seconds`: how long it took.
    """

    model: str
    version: int
    signature: str
    rows: int
    result: str
    seconds: float


class ShapesProbed(NamedTuple):
    """Whether requests of different shapes share calls of a signature with free inner shapes; how, or why not."""

    model: str
    version: int
    signature: str
    padded: bool
    explanation: str


class ModelImproving(NamedTuple):
    """A version that is served becomes faster in the background.

    step: what is done now; empty when nothing is left to do.
    """

    model: str
    version: int
    step: str


Event = (
    BatchExecuted
    | BatchRejected
    | CallRepeated
    | PipelineEnded
    | RequestFinished
    | RequestsFinished
    | RequestTraced
    | ConnectionsRejected
    | RequestsRefused
    | AccessDenied
    | RequestsDenied
    | LogLinesDropped
    | Administered
    | CredentialsLoaded
    | ModelStateChanged
    | ReloadFailed
    | LabelsChanged
    | ModelPlaced
    | VariantsChosen
    | RowsProbed
    | ShadowChecked
    | RowsTried
    | ShapesProbed
    | ModelImproving
)
Listener = Callable[[Event], None]

#: By type of event, the function to call with it.
Subscriptions = Mapping[type[Any], Callable[[Any], None]]


def ignore(event: Event) -> None:
    """A listener that does nothing."""


def tell_all(*subscriptions: Subscriptions) -> Listener:
    """A listener that passes each event to the subscribers of its type, in the order of the arguments."""
    types = {kind for each in subscriptions for kind in each}
    told = {kind: tuple(each[kind] for each in subscriptions if kind in each) for kind in types}

    def tell(event: Event) -> None:
        for listener in told.get(type(event), ()):
            try:
                listener(event)
            except Exception:  # what is counted must not decide what is answered
                logger.exception("A listener failed on %r", event)

    return tell
